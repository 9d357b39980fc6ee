//! System calls that no command needs and that would lead out of the sandbox, or bring the machine down.
//!
//! It must not know files. Everything that is not named here is allowed: ordinary programs must not notice.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::NetworkAccess;

/// Refused with EPERM: other processes, what is mounted, the kernel itself, clocks, keys, new namespaces.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Reported as not implemented, so that programs take the older way: `clone3` hides its flags from a filter, and a ring makes
/// sockets and opens files by itself.
const ABSENT: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Refused with EPERM if they concern another process than the caller: limits, priorities and scheduling classes of the gateway,
/// and of the user's other processes, cannot be changed by commands. Each with the arguments that select the process, and their
/// values for the caller.
const OF_OTHERS: &[(libc::c_long, &[(u8, u64)])] = &[
    (libc::SYS_prlimit64, &[(0, 0)]),
    (libc::SYS_setpriority, &[(0, 0), (1, 0)]),
    (libc::SYS_ioprio_set, &[(0, 1), (1, 0)]),
    (libc::SYS_sched_setparam, &[(0, 0)]),
    (libc::SYS_sched_setscheduler, &[(0, 0)]),
    (libc::SYS_sched_setattr, &[(0, 0)]),
];

/// Flags of `clone` that make a namespace.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Filters the system calls of the calling thread and every process that it starts, irrevocably.
///
/// # Errors
/// Errors of the kernel, or of the making of a filter.
pub(super) fn refuse_syscalls(network: &NetworkAccess) -> Result<(), seccompiler::Error> {
    for filter in build_filters(network)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn build_filters(network: &NetworkAccess) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let whole = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect::<SyscallRules>();
    let mut refused = whole(REFUSED);
    let masked = |flag: &libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        // The call has its flags first on every machine that is built for.
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![condition])
    };
    refused.insert(libc::SYS_clone, NAMESPACES.iter().map(masked).collect::<Result<_, _>>()?);
    for (call, own) in OF_OTHERS {
        let other = |(argument, own): &(u8, u64)| {
            let is_other = SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *own)?;
            SeccompRule::new(vec![is_other])
        };
        refused.insert(*call, own.iter().map(other).collect::<Result<_, _>>()?);
    }
    let mut all = vec![build_filter(refused, libc::EPERM)?, build_filter(whole(ABSENT), libc::ENOSYS)?];
    if let Some(rules) = socket_rules(network)? {
        all.push(build_filter(SyscallRules::from([(libc::SYS_socket, rules)]), libc::EACCES)?);
    }
    if cfg!(target_arch = "x86_64")
        && let Some(first) = all.first_mut()
    {
        first.splice(0..0, without_x32());
    }
    Ok(all)
}

/// Returns the rules for refused sockets, if any.
fn socket_rules(network: &NetworkAccess) -> Result<Option<Vec<SeccompRule>>, seccompiler::Error> {
    let number = |constant: libc::c_int| u64::from(constant.unsigned_abs());
    let is = |argument, how, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value);
    let other_than = |domains: &[libc::c_int]| {
        let all = domains.iter().map(|domain| is(0, SeccompCmpOp::Ne, number(*domain)));
        SeccompRule::new(all.collect::<Result<Vec<_>, _>>()?)
    };
    match network {
        NetworkAccess::On => Ok(None),
        NetworkAccess::Off => Ok(Some(vec![other_than(&[libc::AF_UNIX])?])),
        NetworkAccess::Hosts(_) => {
            let mut rules = vec![other_than(&[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6])?];
            for domain in [libc::AF_INET, libc::AF_INET6] {
                // Streams are the one kind whose number has none of these bits.
                for bit in [2, 4, 8] {
                    let kind = is(1, SeccompCmpOp::MaskedEq(bit), bit)?;
                    rules.push(SeccompRule::new(vec![is(0, SeccompCmpOp::Eq, number(domain))?, kind])?);
                }
            }
            Ok(Some(rules))
        }
    }
}

fn build_filter(rules: SyscallRules, error: libc::c_int) -> Result<BpfProgram, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(error.unsigned_abs());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()?)
}

/// Returns a filter that refuses the second numbering of the same calls, which a list of numbers would not see, as a whole.
fn without_x32() -> [sock_filter; 3] {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const FIRST_OF_X32: u32 = 0x4000_0000;
    const REFUSE: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();
    [
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: FIRST_OF_X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: REFUSE },
    ]
}
