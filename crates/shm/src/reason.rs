//! Why a connection is on the path it is on: stable codes for machines, a sentence for people.
//!
//! Codes never change their meaning; new ones are added at the end. Numbers that explain a case (limits,
//! byte counts) stand in human text only, never in the code.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $code:literal, $text:literal;)*) => {
        /// A path and the reason for it. The discriminant is the value stored in shared memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Reason { $($(#[$doc])* #[doc = $text] $name = $value,)* }

        impl Reason {
            /// Every reason, in the order of its value.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The reason stored as `value`; unknown values (a newer version wrote them) give `None`.
            pub const fn from_value(value: u16) -> Option<Reason> {
                match value { $($value => Some(Reason::$name),)* _ => None }
            }

            /// The stable code, such as `peer-plain`.
            pub const fn code(self) -> &'static str { match self { $(Reason::$name => $code,)* } }

            /// Whether it is about something that Bypath cannot serve, rather than about the other end, the user's
            /// settings or the end of a connection.
            pub const fn is_unsupported(self) -> bool {
                use Reason::*;
                matches!(
                    self,
                    ForeignEpoll | UnhookedWriter | SmallBuffer | SocketOption | StandardDescriptor | FastOpen
                        | NoDescriptors | NoMemory | MemoryLimit | ForbiddenCall | TableFull | Squatter
                        | VersionMismatch | IoUring | PeerMemoryInvalid | RecalledStdio | RecalledOob | RecalledUlp
                        | RecalledOption | RecalledWaiters | RecalledNoBell | RecalledEpoll | RecalledSplice
                        | RecalledMemory | RecalledIoUring | RecalledForeignReader | Seccomp | RecalledSeccomp
                        | DescriptorTables | RecalledTables | SharedQueue | OneShot | BoundDevice | SteeredPort | MailboxLimit
                )
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str { match self { $(Reason::$name => $text,)* } }
        }
    };
}

reasons! {
    None = 0, "none", "nothing happened yet";
    Ring = 1, "ring", "bytes go through shared memory";
    BelowThreshold = 2, "below-threshold", "too little traffic so far to be worth an upgrade";
    PeerPlain = 3, "peer-plain", "the other end does not run under Bypath, or has not answered yet";
    PeerRemote = 4, "peer-remote", "the other end is not a socket of this host and network namespace";
    Disabled = 5, "disabled", "upgrades are switched off (--upgrade=off)";
    PolicyUid = 6, "policy-uid", "the other end belongs to a user that is not allowed (--allow-uid)";
    PolicyNamespace = 7, "policy-namespace", "the other end lives in other pid, user or mount namespaces";
    SharedProcesses = 8, "shared-processes", "several processes hold this descriptor";
    InKernelCall = 9, "in-kernel-call", "a thread is blocked in a kernel call on this descriptor";
    ForeignEpoll = 10, "foreign-epoll", "an epoll set that holds the descriptor is not waited on through Bypath";
    UnhookedWriter = 11, "unhooked-writer", "bytes were written without Bypath seeing them";
    SmallBuffer = 12, "small-buffer", "the socket's send buffer is too small to take back a ring";
    SocketOption = 13, "socket-option", "a socket option in use has no equivalent on a ring";
    RendezvousFolder = 14, "rendezvous-folder", "the folder of --rendezvous is not there, or others may take names away in it";
    StandardDescriptor = 15, "standard-descriptor", "descriptors 0, 1 and 2 always stay on the kernel";
    FastOpen = 16, "fast-open", "TCP Fast Open moved bytes before they could be counted";
    NoDescriptors = 17, "no-descriptors", "no room for another descriptor (RLIMIT_NOFILE)";
    NoMemory = 18, "no-memory", "no shared memory to be had";
    MemoryLimit = 19, "memory-limit", "the process's ceiling for ring memory is reached";
    ForbiddenCall = 20, "forbidden-call", "a system call that an upgrade needs is forbidden here (seccomp, container)";
    TableFull = 21, "table-full", "more sockets than the table can follow";
    Squatter = 22, "squatter", "somebody else answers at the other end's rendezvous";
    VersionMismatch = 23, "version-mismatch", "the other end runs another version of Bypath";
    NotConnected = 24, "not-connected", "the socket is not connected";
    Inherited = 25, "inherited", "the descriptor was inherited from another program image";
    IoUring = 26, "io-uring", "the process uses io_uring, whose operations cannot be seen";
    PeerMemoryInvalid = 27, "peer-memory-invalid", "the other end wrote nonsense into shared memory";
    Refused = 28, "refused", "the other end declined";
    Rule = 29, "rule", "a rule of the configuration file keeps it on the kernel";
    ConnectionLimit = 30, "connection-limit", "this process, or that at the other end, has as many upgraded connections as it may (--connection-limit)";
    Seccomp = 31, "seccomp", "the process has put itself under a seccomp filter, which may forbid what rings need";
    RecalledShutdown = 32, "recalled-shutdown", "taken back before shutdown()";
    RecalledClose = 33, "recalled-close", "taken back before the last close()";
    RecalledExit = 34, "recalled-exit", "taken back before the process ended";
    RecalledExec = 35, "recalled-exec", "taken back before another program image got the descriptor";
    RecalledSpawn = 36, "recalled-spawn", "taken back before a child program got the descriptor";
    RecalledScmRights = 37, "recalled-scm-rights", "taken back before the descriptor was sent to another process";
    RecalledStdio = 38, "recalled-stdio", "taken back before the descriptor became a stdio stream";
    RecalledOob = 39, "recalled-oob", "taken back for urgent data";
    RecalledUlp = 40, "recalled-ulp", "taken back before the kernel took over the protocol (TCP_ULP)";
    RecalledRingFull = 41, "recalled-ring-full", "taken back because the ring stayed full";
    RecalledStalledReader = 42, "recalled-stalled-reader", "taken back because nobody seemed to read the ring";
    RecalledFork = 43, "recalled-fork", "taken back around fork()";
    RecalledOption = 44, "recalled-option", "taken back before a socket option the ring cannot honour";
    RecalledPeer = 45, "recalled-peer", "the other end took its direction back or asked for it";
    RecalledPeerClosed = 46, "recalled-peer-closed", "the other end closed or reset the connection";
    RecalledWaiters = 47, "recalled-waiters", "taken back because too many threads wait on one socket";
    RecalledNoBell = 48, "recalled-no-bell", "taken back because a sleeper could not be woken";
    RecalledEpoll = 49, "recalled-epoll", "taken back because of an epoll set the overlay cannot serve";
    RecalledSplice = 50, "recalled-splice", "taken back for a call that moves bytes inside the kernel";
    RecalledConnect = 51, "recalled-connect", "taken back before connect() on a connected socket";
    RecalledMemory = 52, "recalled-memory", "taken back because no memory was left for the ring";
    RecalledIoUring = 53, "recalled-io-uring", "taken back because of io_uring";
    RecalledTest = 54, "recalled-test", "taken back by a test";
    RecalledWatermark = 55, "recalled-watermark", "taken back because a low-water mark or a peek exceeds half the ring";
    RecalledForeignReader = 56, "recalled-foreign-reader", "taken back because carrier bytes appeared that Bypath did not write";
    RecalledCommand = 57, "recalled-command", "taken back because `bypath recall` asked for it";
    RecalledSlower = 58, "recalled-slower", "taken back because the kernel seemed, or was, faster (--guard)";
    RecalledSeccomp = 59, "recalled-seccomp", "taken back before a seccomp filter";
    RecalledTaken = 60, "recalled-taken", "taken back because another process took a descriptor of it (pidfd_getfd)";
    SharedPort = 61, "shared-port", "other sockets may be bound to the same port (SO_REUSEADDR, SO_REUSEPORT)";
    UnknownSource = 62, "unknown-source", "the sender is not known by the address that it claims, or is not of this host";
    PeerUnproven = 63, "peer-unproven", "who answers has not shown that it has the other end of this connection (--rendezvous), or what the kernel counts at both does not agree; or, of another user, too little that this end has sent was acknowledged yet";
    OtherUser = 64, "other-user", "the other UDP socket belongs to another user, or another user answers at its name: senders see what the others write to a mailbox (--allow-uid is about connections)";
    OtherNamespace = 65, "other-namespace", "the program at this end is in another network namespace than the socket; or, of UDP, the one at the other end lives in other pid, user or mount namespaces";
    OtherHost = 66, "other-host", "datagrams go to another host, to a group or everybody, or to the address of a link";
    SharedQueue = 67, "shared-queue", "several processes hold this UDP socket, and nobody knows which of them reads next";
    OneShot = 68, "one-shot", "an epoll set holds the UDP socket with EPOLLONESHOT";
    BoundDevice = 69, "bound-device", "the socket is bound to a device (SO_BINDTODEVICE): others may have its addresses beside it";
    SteeredPort = 70, "steered-port", "a program says itself who of those at this port gets what (a filter of the group, SO_INCOMING_CPU)";
    MailboxLimit = 71, "mailbox-limit", "as many mailboxes as a process can have or use, or as many senders as a mailbox can have";
    NoSender = 72, "no-sender", "it has a mailbox, and nobody has asked for that yet";
    Asleep = 73, "asleep", "the receiver was not looking whenever a datagram came so far: who sleeps, or is busy, gets it from the kernel";
    PeerRule = 74, "peer-rule", "a rule of the program at the other end keeps it on the kernel";
    ToItself = 75, "to-itself", "the UDP socket sends to itself";
    NoOvercommit = 76, "no-overcommit", "the other end belongs to another user, and this kernel promises no more memory than it has (vm.overcommit_memory is 2): what that user gives back could be missed here";
    DescriptorTables = 77, "descriptor-tables", "its threads do not all have the same descriptors, or another process has the very same table of them (unshare or clone, CLONE_FILES): one number may mean several sockets";
    RecalledTables = 78, "recalled-tables", "taken back before a thread got descriptors of its own, or another process the same ones (CLONE_FILES)";
}

/// Slots reserved for reason counters in a statistics record; every value is below it.
pub const REASON_SLOTS: usize = 128;

const _: () = {
    let mut i = 0;
    while i < Reason::ALL.len() {
        assert!((Reason::ALL[i] as usize) < REASON_SLOTS);
        i += 1;
    }
};
