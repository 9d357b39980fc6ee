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
        "cd $X; cat *",
        "cd \"$OLDPWD\"; cat *",
        "read -r x <<< ../../..; cd \"$x\"; cat *",
    ] {
        let line = judged(command);
        let is_held =
            line.opaque.is_some() || line.floor.is_some() || line.protected.is_some() || line.unreadable.is_some();
        assert!(is_held, "{command}");
    }
}

#[test]
fn everyday_work_in_the_folder_is_left_alone() {
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
    ] {
        let line = judged(command);
        let held = [&line.opaque, &line.floor, &line.protected, &line.unreadable];
        assert!(held.iter().all(|why| why.is_none()), "{command}: {held:?}");
    }
}
