//! Lines over a gateway of which the files lie above the folder of the agent that works for it.

use super::super::{Line, Place, judge};

fn judged(command: &str) -> Line {
    let own = ["/g/permissions.yaml", "/g/config.yaml", "/g/data/record.db"].map(str::to_owned);
    let place = Place {
        tool: "bash".to_owned(),
        cwd: "/g/data/agents/main".to_owned(),
        home: Some("/home/ana".to_owned()),
        protected: own.to_vec(),
        unreadable: vec!["/g/config.yaml".to_owned()],
        ..Place::default()
    };
    judge(command, &place)
}

#[test]
fn no_roundabout_way_to_the_gateways_files_is_covered() {
    let mut covered = Vec::new();
    for command in [
        // A folder above, and the source's own name.
        "cp permissions.yaml ../../..",
        "cp -t ../../.. permissions.yaml",
        "cp *.yaml ../../..",
        "cp * ../../..",
        "cd ../../..; cp data/agents/main/permissions.yaml .",
        "cp \"$x\" ../../..",
        "install permissions.yaml ../../..",
        "ln -f permissions.yaml ../../..",
        "ln -sf x/permissions.yaml ../../..",
        "cd ../../..; ln -f data/agents/main/permissions.yaml",
        "rsync permissions.yaml ../../..",
        "scp h:permissions.yaml ../../..",
        "mv permissions.yaml ../../..",
        // Names from elsewhere.
        "curl --output-dir ../../.. -O http://h/permissions.yaml",
        "cd ../../..; curl -O http://h/permissions.yaml",
        "wget -P ../../.. -N http://h/permissions.yaml",
        "wget -P../../.. -N http://h/permissions.yaml",
        "curl 'file:///x/{permissions}' -o '../../../#1.yaml'",
        "tar xf x.tar -C ../../..",
        "cd ../../..; unzip x.zip",
        "cd ../../..; patch -p0 -i data/x",
        // Names made of parts.
        "sed -i'../../../permissions.yam*' p l",
        "sed --in-place='../../../permissions.yam*' p l",
        "cp -b -S .yaml x ../../../permissions",
        "mv --suffix=.yaml -b x ../../../permissions",
        "split -n1 --additional-suffix=ml -a1 evil.yaml ../../../permissions.y",
        "csplit -f ../../../permissions.y evil.yaml 1",
        // The whole folder.
        "cp -r ../../.. x",
        "tar cf x.tar ../../..",
        "rsync -a ../../../ x/",
        "zip -r x.zip ../../..",
        "git -C ../../.. add -A",
        // Words that arrive in another way.
        "echo ../../../permissions.yaml | xargs cp evil.yaml",
        "echo permissions.yaml | xargs -I{} cp evil.yaml ../../../{}",
        "read -r x <<< permissions.yaml; cp evil.yaml \"../../../$x\"",
        "read -r x <<< ../../../permissions.yaml; cp evil.yaml \"$x\"",
        "read -r x <<E\n../../../permissions.yaml\nE\ncp evil.yaml \"$x\"",
        "cp evil.yaml ../../../{p..p}ermissions.yaml",
        "cat ../../../{c..c}onfig.yaml",
        "cat {x},../../../config.yaml}",
        "read -r x <<< ../../../config.yaml; cat \"$x\"",
        "while read -r f; do cat \"$f\"; done <<< ../../../config.yaml",
        "read -r x <<< config.yaml; cat \"../../../$x\"",
        "echo config.yaml | xargs -I{} cat ../../../{}",
        "ls ../../.. | head -1 | xargs -I{} cat ../../../{}",
        "find ../../.. | xargs cat",
        "printf '../../../config.yaml\\n' | xargs cat",
        "printf 'x\\0../../../config.yaml\\0' | sort --files0-from=-",
        "printf '%s/config.yaml' ../../.. | xargs cat",
        "printf '../../../\\x63onfig.yaml' | xargs cat",
        "echo -e '../../../conf\\0151g.yaml' | xargs cat",
        "echo ../../../config.yaml | cpio -pd out",
        "echo ../../../config.yaml | git hash-object -w --stdin-paths",
        "read -r x <<< g/config.yaml; cat \"/$x\"",
        "read -r a b <<< '/g config.yaml'; cat \"$a/$b\"",
        "echo ../../.. config.yaml | (read -r a b; cat \"$a/$b\")",
        "find ../../.. -type f | while read -r f; do cat \"$f\"; done",
        "[[ ../../../config.yaml =~ .* ]]; cat \"$BASH_REMATCH\"",
        "true config.yaml; cat \"../../../$_\"",
        "true ../../../permissions.yaml; cp evil.yaml \"$_\"",
        "for x in ../../../CONFIG.YAML; do cat \"${x,,}\"; done",
        "cat \"${PWD/data*/config.yaml}\"",
        "cp evil.yaml \"${PWD/data*/permissions.yaml}\"",
        // Through the kernel's own paths, and from nobody knows where.
        "cat /proc/self/cwd/../../../config.yaml",
        "cp evil.yaml /proc/self/cwd/../../../permissions.yaml",
        "cat /proc/$$/cwd/../../../config.yaml",
        "cat /proc/self/root/g/config.yaml",
        "cat /dev/fd/9/config.yaml",
        "cat /usr/../proc/self/cwd/../../../config.yaml",
        "cat < /usr/../proc/self/cwd/../../../config.yaml",
        "cat /pro[c]/self/cwd/../../../config.yaml",
        "cat /proc/self/c[w]d/../../../config.yaml",
        "cat ../../../../../../proc/self/cwd/../../../config.yaml",
        "cd -P /proc/self/cwd/../../..; cat config.yaml",
        "cd -P /proc/self/cwd/..; cd ../..; cat config.yaml",
        "cd /proc/self/cwd; cat ../../../config.yaml",
        "cd /proc/self/cwd; cd src; cp a b; cat ../../../config.yaml",
        "cd /proc/self/fd/3; cat config.yaml",
        "cat /proc/$PPID/cwd/config.yaml",
        "cat /proc/*/cwd/conf*",
        "cat /proc/$PPID/fd/7",
        "cp permissions.yaml /proc/$PPID/cwd/",
        "grep -r key /proc/$PPID/cwd/",
        "cat /dev/stdin/config.yaml < ../../..",
        "cat /dev/stderr/conf* 2< ../../..",
        "cd /dev/stdin < ../../..; cat config.yaml",
        "cp permissions.yaml /dev/stdin < ../../..",
        "cat /var/run/../g/config.yaml",
        "cp -t /proc/self/cwd/../../.. permissions.yaml",
        "cp permissions.yaml /proc/self/cwd/../../..",
        "cp -r /proc/self/cwd/../../.. x",
        "rm -rf /proc/self/cwd/../../..",
        // Programs that show whole trees.
        "grep -r key ../../..",
        "grep key -r ../../../../g",
        "grep -rh key ../../.. --include=config.yaml",
        "grep -d recurse key ../../..",
        "grep -drecurse key ../../../",
        "grep --directories=recurse key ../../..",
        "grep --recursive key ../../..",
        "cd ../../..; grep -r key",
        "grep -re key /",
        "grep -r key /",
        "rg key ../../..",
        "rg key /",
        "diff -rN ../../.. .",
        "diff --recursive --new-file ../../.. .",
        "git diff --no-index . ../../..",
        "tar czf x.tgz /",
        "chmod -R a+r ../../..",
        // Names that find makes.
        "find ../../../data -maxdepth 0 -execdir cat config.yaml ;",
        "find . -maxdepth 0 -exec cat {}/../../../config.yaml \\;",
        "find . -maxdepth 0 -exec cp permissions.yaml {}/../../.. \\;",
        "find . -maxdepth 0 -exec cp evil.yaml {}/../../../permissions.yaml \\;",
        "find ../../.. -maxdepth 1 -type f -exec cat {} +",
        "find ../../.. -maxdepth 1 -type f | xargs cat",
        // Put together of what is read and of the line's own text.
        "read -r x <<< /../../config.yaml; cat \"..$x\"",
        "read -r x <<< /../../permissions.yaml; cp evil.yaml \"..$x\"",
        "echo ../../.. | xargs cp permissions.yaml",
        "echo ../.. | xargs -I{} cp permissions.yaml {}/..",
        "read -r a <<< ../..; cat \"$a/../config.yaml\"",
        "read -r a <<< '../../..'; cp permissions.yaml \"$a\"",
        // Other names.
        "ln -s ../../.. l; cat l/config.yaml",
        "ln -s ../.. l; cat l/../config.yaml",
        "ln -s / l; cat l\"$PWD\"/../../../config.yaml",
        "cp x.gz ../../../permissions.yaml.gz; gunzip -f ../../../permissions.yaml.gz",
        "gzip -d ../../../permissions.yaml.gz",
        "curl file://localhost/g/config.yaml",
        "curl \"FILE://127.0.0.1$PWD/../../../config.yaml\"",
        "curl file:///g/c%6fnfig.yaml",
        "curl 'file:///g/{config}.yaml'",
        "curl 'file:///{g,h}/config.yaml'",
        "curl \"file://$PWD/{../../../config.yaml}\"",
        "curl 'file:///x/{../..}/y' -o '#1/permissions.yaml'",
        "curl 'http://h/{..}/x' -o '#1/../../permissions.yaml'",
        "curl -T x file:///g/permissions%2eyaml",
        "cd $X; cat *",
        "cd \"$OLDPWD\"; cat *",
        "read -r x <<< ../../..; cd \"$x\"; cat *",
    ] {
        let line = judged(command);
        let is_held =
            line.opaque.is_some() || line.floor.is_some() || line.protected.is_some() || line.unreadable.is_some();
        covered.extend((!is_held).then_some(command));
    }
    assert!(covered.is_empty(), "{covered:#?}");
}

#[test]
fn everyday_work_in_the_folder_is_left_alone() {
    let mut wrong = Vec::new();
    for command in [
        "cp a b/",
        "cp permissions.yaml b/",
        "cp -r src dst",
        "cp -r . ../copy",
        "cp \"$x\" out/",
        "tar czf x.tgz .",
        "tar xf x.tar",
        "curl -O https://h/permissions.yaml",
        "curl -o x \"https://$host/x\"",
        "wget -q https://h/x",
        "git add -A",
        "git -C ../other add -A",
        "ls ../../..",
        "cat \"$x/config.yaml.example\"",
        "while read -r f; do cat \"src/$f\"; done < names",
        "ls | xargs -I{} cp {} out/",
        "echo ../README.md | xargs cat",
        "grep -rn \"/$name\" src",
        "while read -r f; do cat \"$f\"; done < names",
        "echo a b | xargs -n1 cat",
        "cat /proc/cpuinfo /dev/null",
        "cd sub; cat *",
        "mkdir -p a && cd \"$_\" && cat b",
        "find . -name x | xargs grep y",
        "printf 'a\\nb %s\\n' c | xargs cat",
        "ls | while read -r f; do echo \"$f\"; done",
        "cd .. && ls | wc -l",
        "echo ./a /tmp/b | xargs cat",
        "[[ $x =~ .* ]] && echo \"$BASH_REMATCH\"",
        "git -C ../../.. status",
        "sed -i.bak s/a/b/ x",
        "split -l 10 x out/part-",
        "grep -rn key .",
        "grep -rn '..' src",
        "rg -n '/' src",
        "rg key",
        "diff -r a b",
        "diff -ru ../other .",
        "ln -s ../other/lib lib",
        "ln -s a b",
        "chmod -R u+w out",
        "gunzip x.gz",
        "find . -name '*.rs' -exec grep -n x {} +",
        "find .. -maxdepth 1 -name x",
        "cat \"..$x\" | head",
        "curl https://h/{a,b}",
        "sqlite3 x.db 'select credit from t'",
        "gcc-12 -O2 -o x x.c",
    ] {
        let line = judged(command);
        let held = [&line.opaque, &line.floor, &line.protected, &line.unreadable];
        if held.iter().any(|why| why.is_some()) {
            wrong.push(format!("{command}: {held:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
