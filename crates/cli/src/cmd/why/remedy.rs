//! What a user can do about a reason.

use bypath_shm::reason::Reason;

/// What the user can do about a reason, where there is something to do.
pub(super) fn usual(reason: Reason) -> Option<&'static str> {
    use Reason::*;
    let remedy = match reason {
        PeerPlain => {
            "Start the program at the other end with: bypath run -- PROGRAM (if it is, `bypath why` tells its own reason: \
             a rule, a switch or a threshold of its own)."
        }
        Rule => {
            "Change the rule and start the program anew; `bypath config show -- PROGRAM` shows what will hold."
        }
        ConnectionLimit => "Raise --connection-limit, at this end or at the other.",
        BelowThreshold => {
            "It moves after as many calls or bytes as --upgrade-calls and --upgrade-bytes say; `bypath run --upgrade=eager` upgrades at the first byte."
        }
        Disabled => {
            "Start the program without --upgrade=off (and without BYPATH_UPGRADE=off in its environment)."
        }
        PolicyUid => {
            "Start both programs with --allow-uid, each naming the other's user: bypath run --allow-uid UID -- PROGRAM"
        }
        NoOvercommit => {
            "Set vm.overcommit_memory to 0 or 1 (sysctl), or let both programs run as one user: programs of one user may share memory."
        }
        PolicyNamespace => {
            "Programs of different containers share memory only if they share pid, user and mount namespaces, or if both are \
             started with the same folder: bypath run --rendezvous FOLDER -- PROGRAM"
        }
        PeerRemote => {
            "If the other end is in another network namespace or container of this host, without address translation in \
             between, start both programs with a folder that both have: bypath run --rendezvous FOLDER -- PROGRAM"
        }
        PeerUnproven => {
            "With another user's program, which --allow-uid names: a connection by which this end sends nothing stays on the kernel. With --rendezvous: look \
             whether a proxy stands between the ends, or whether networks with equal addresses use the same folder: give each of them one of its own."
        }
        RendezvousFolder => {
            "Let the folder be the user's who runs these programs, or root's, closed to others (chmod 700) or sticky \
             (chmod 1777), seen under this name in the container, and with /proc mounted."
        }
        NoDescriptors => "Raise the limit of open files (ulimit -n, LimitNOFILE=).",
        NoMemory | RecalledMemory => {
            "Give the program more memory (memory limit of its control group), or use smaller rings (--ring-size)."
        }
        MemoryLimit => "Raise --memory-limit, or use smaller rings (--ring-size).",
        ForbiddenCall => {
            "Allow memfd_create, eventfd2 and socket(AF_UNIX, AF_NETLINK) in the sandbox of the program."
        }
        SmallBuffer => "Let the program set a larger SO_SNDBUF, or use smaller rings (--ring-size).",
        IoUring | RecalledIoUring => {
            "If the program uses io_uring for files only, start it with --io-uring=allow; if it can do without, with --io-uring=avoid."
        }
        VersionMismatch => "Restart both programs, so that both use the installed version.",
        Squatter => {
            "Find the foreign program that listens on abstract sockets named bypath: ss -xlp | grep bypath"
        }
        StandardDescriptor => {
            "Let the program open the connection itself instead of getting it as standard input or output."
        }
        OtherUser => {
            "Run both programs as one user, who opens the sockets, too: one that a server has opened as root stays root's. \
             Who answers for it is shown by: ss -xlp | grep bypath"
        }
        OtherNamespace => {
            "Run both programs in the same pid, user and mount namespaces, and use a socket in the network namespace in which it was made (before Linux \
             5.14 nobody can tell that); one that lives in another root directory (chroot) needs \
             /proc there to tell its own."
        }
        PeerRule => {
            "Look at the rules that the program at the other end was started with: bypath why PID says which one it is."
        }
        SharedQueue => {
            "Let each process open a socket of its own (SO_REUSEPORT, if they share the port), or close what it does not use."
        }
        OneShot => "Register the socket without EPOLLONESHOT.",
        MailboxLimit => "Have fewer sockets, or fewer senders, in one process.",
        NoSender => {
            "If the senders are under Bypath, too: `bypath why` tells their reasons. They ask from the 16th datagram on (--upgrade-calls)."
        }
        Asleep => {
            "A receiver that looks for a while before it sleeps gets more by the ring: bypath run --profile=latency -- PROGRAM"
        }
        _ => return Option::None,
    };
    Some(remedy)
}

/// The same where the other end is a netstack service.
pub(super) fn on_service(reason: Reason) -> Option<&'static str> {
    use Reason::*;
    match reason {
        PeerPlain | Refused | PeerUnproven | PeerRemote => Option::None,
        PolicyUid => Some(
            "Look whether the program gives memory back that it shares (memory limit of its control group); on the service's host set \
             vm.overcommit_memory to 0 or 1, and raise fs.aio-max-nr. Then start the service anew.",
        ),
        MemoryLimit => Some(
            "Raise octets-per-user in the file of the service, or --memory-limit; or use smaller rings (--ring-size, ring-octets).",
        ),
        SmallBuffer => {
            Some("Look at ring-octets in the file of the service (bypath netstack --config): 0 is no rings.")
        }
        reason => usual(reason),
    }
}
