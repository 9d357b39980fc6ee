//! A network of the exec child's own: nothing is in it but its loopback, and one listener that the gateway answers.
//!
//! It must not know which hosts are reached. A listener belongs to the network in which it was made, in the hands of any process:
//! the gateway takes the connections of these commands, and no other process can make one.

use std::{
    fs, io,
    io::IoSlice,
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::{fd::AsFd as _, unix::net::UnixStream},
};

use nix::{
    sched::{CloneFlags, unshare},
    sys::prctl,
    unistd::{getegid, geteuid},
};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
        send, sendmsg, socket_with,
    },
    thread::{CapabilitySet, CapabilitySets, set_capabilities},
};

use super::frame::ChildReport;
use crate::sandbox::{NetworkAccess, SandboxBounds};

/// The port of the listener. No other listener is in the network.
pub(crate) const PORT: u16 = 3128;

/// Puts `bounds` on, in a network of its own if they name hosts, and reports that to the gateway.
///
/// # Errors
/// Why nothing may be started, in words.
pub(super) fn apply_bounds(mut bounds: SandboxBounds, control: &UnixStream) -> Result<(), String> {
    let is_named = matches!(bounds.network, NetworkAccess::Hosts(_));
    let entered = is_named.then(enter_network);
    if let Some(Err(error)) = &entered {
        if bounds.must_hold {
            return Err(format!("cannot restrict the network to listed hosts: {error}"));
        }
        // Less than requested is nothing, not everything.
        bounds.network = NetworkAccess::Off;
    }
    bounds.put_on().map_err(|error| error.to_string())?;
    match entered {
        None => Ok(()),
        Some(Ok(listener)) => hand_over(control, &listener),
        Some(Err(error)) => {
            let report = ChildReport::Network(Some(error.to_string())).encode();
            io::Write::write_all(&mut &*control, &report)
        }
    }
    .map_err(|error| error.to_string())
}

fn enter_network() -> io::Result<TcpListener> {
    let (user, group) = (geteuid(), getegid());
    // A process with the right to needs no user namespace, in which the files of others would have no owner.
    let is_users = unshare(CloneFlags::CLONE_NEWNET).is_err();
    if is_users {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
            .map_err(|error| io::Error::other(format!("this user may not create namespaces ({error})")))?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    raise_loopback()
        .map_err(|error| io::Error::other(format!("cannot enable loopback in the new network namespace: {error}")))?;
    if is_users {
        // In a namespace of its own a process has every capability, and the shell, which has none, could not open our pipes.
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        prctl::set_dumpable(true)?;
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
}

/// Asks the kernel to set the first interface up, and reads whether it did.
fn raise_loopback() -> io::Result<()> {
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ANSWER: u16 = 1 | 4;
    const UP: u32 = 1;
    const LENGTH: u32 = 32;
    let mut request = Vec::with_capacity(LENGTH as usize);
    request.extend(LENGTH.to_ne_bytes());
    request.extend(NEW_LINK.to_ne_bytes());
    request.extend(REQUEST_AND_ANSWER.to_ne_bytes());
    // Its number and the sender's; then the family and kind of the interface, which is the first.
    request.extend([0; 12]);
    request.extend(1_u32.to_ne_bytes());
    request.extend(UP.to_ne_bytes());
    request.extend(UP.to_ne_bytes());
    // No protocol is the first, which is that of routes and interfaces.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (_, length) = recv(&socket, &mut answer, RecvFlags::empty())?;
    match answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) if length >= 20 => Ok(()),
        Some(code) if length >= 20 => Err(io::Error::from_raw_os_error(-code)),
        Some(_) | None => Err(io::Error::other("the netlink answer of the kernel is too short")),
    }
}

fn hand_over(control: &UnixStream, listener: &TcpListener) -> io::Result<()> {
    let report = ChildReport::Network(None).encode();
    let given = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !message.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("cannot pass the listener to the gateway"));
    }
    // A message of a few bytes on a socket that is empty goes whole.
    let sent = sendmsg(control, &[IoSlice::new(&report)], &mut message, SendFlags::empty())?;
    if sent == report.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
