//! Why the packet path does not do what was asked.

use std::path::PathBuf;

/// Why the packet path does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The program was built without clang.
    #[error("this sallyport-packet was built without clang: run scripts/need clang, and build it again")]
    NoProgram,
    /// No root.
    #[error("the packet path needs root: run the command with sudo")]
    NotRoot,
    /// Root without the capabilities.
    #[error(
        "the kernel lets this process load no programs: the packet path needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and \
         CAP_SYS_ADMIN, which containers lack"
    )]
    NotCapable,
    /// No device of this name.
    #[error("there is no device {0} in this network namespace: `ip link` lists the devices")]
    NoDevice(String),
    /// A VLAN, which its port carries.
    #[error("{device} is VLAN {vid} of {parent}: name {parent}, which brings its VLANs along")]
    IsVlan {
        /// The device.
        device: String,
        /// Its VLAN.
        vid: u16,
        /// The port below.
        parent: String,
    },
    /// Too many ports.
    #[error("{0} ports are more than {max}, the most of a router", max = crate::table::MAX_ROUTER_PORTS)]
    TooManyPorts(usize),
    /// Too many VLANs.
    #[error("{0} VLANs are more than {max}, the most of a router", max = crate::table::MAX_VLANS)]
    TooManyVlans(usize),
    /// Two devices of one slot.
    #[error("{0} and {1} have indexes that fall into one slot of the table: make one of the devices anew")]
    SameSlot(String, String),
    /// The driver has no native XDP.
    #[error(
        "the driver of {0} runs XDP only in generic mode, which is slower than the kernel's forwarding: \
         use a device with native XDP"
    )]
    GenericOnly(String),
    /// The driver sends no frames of XDP.
    #[error(
        "the driver of {0} sends no XDP frames: use another device; for a veth, turn GRO of its peer on, or off and on \
         (`ethtool -K PEER gro off` and `gro on`)"
    )]
    CannotSend(String),
    /// No such queue.
    #[error(
        "{device} has no queue {queue} for AF_XDP: each processor sends by a queue of its own, and `ethtool -l \
         {device}` says how many there are"
    )]
    NoQueue {
        /// The device.
        device: String,
        /// The queue.
        queue: u32,
    },
    /// Another socket has the queue.
    #[error("another program sends by AF_XDP on queue {queue} of {device}: end it first")]
    QueueBusy {
        /// The device.
        device: String,
        /// The queue.
        queue: u32,
    },
    /// No such namespace.
    #[error(
        "there is no network namespace {0}: `ip netns` lists those with names; a path such as /proc/PID/ns/net works too"
    )]
    NoNamespace(String),
    /// A file that is none.
    #[error("{0} is no network namespace")]
    NotANamespace(String),
    /// No such processor.
    #[error("there is no processor {0} for this process: `nproc` says how many there are, from 0 on")]
    NoProcessor(usize),
    /// Another program is there.
    #[error(
        "{device} has an XDP program already ({name}, id {id}): remove it by `ip link set dev {device} {mode} off`, \
         or leave {device} out"
    )]
    AlreadyAttached {
        /// The device.
        device: String,
        /// The name of the program.
        name: String,
        /// Its id.
        id: u32,
        /// The word of `ip link` for its mode.
        mode: &'static str,
    },
    /// The program of another router is there.
    #[error(
        "{device} is a port of a router already: `sallyport packet --pins ITS-FOLDER router down` frees it, or where \
         that folder is lost `ip link set dev {device} xdp off`"
    )]
    OtherRouter {
        /// The device.
        device: String,
    },
    /// No bpffs.
    #[error("{0} is not in a mounted bpffs: run `mount -t bpf bpf /sys/fs/bpf`")]
    NoBpffs(PathBuf),
    /// Another user could exchange the state.
    #[error("{0} belongs to another user, or others may write it: remove it, or use another folder by --pins")]
    UnsafeFolder(PathBuf),
    /// The state of another network namespace.
    #[error("{0} has the state of another network namespace, which still exists: use another folder here, by --pins")]
    OtherNamespace(PathBuf),
    /// Two commands at once.
    #[error("another command changes this router at this moment: wait for its end")]
    Changing,
    /// Nothing stands.
    #[error("no router stands here: `sallyport packet router up --dev DEVICE,DEVICE` starts one")]
    NotUp,
    /// No balancer.
    #[error("no balancer stands here: `sallyport packet balance up --config balance.toml` starts one")]
    NoBalancer,
    /// No edge behind a balancer.
    #[error("this machine takes no packets of balancers: `sallyport packet decap up --help` says how it does")]
    NoDecap,
    /// The state of a balancer is too large.
    #[error("the state of the balancer has {0} bytes, more than {max}", max = crate::balance::MAX_STATE_BYTES)]
    StateTooLarge(usize),
    /// Too many entries.
    #[error("{count} {what} are more than {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The most.
        most: usize,
    },
    /// Another process looks at packets.
    #[error("another `sallyport packet dump` looks at this router: end it first")]
    DumpBusy,
    /// The pinned state is of another version.
    #[error(
        "the state in {0} has another layout: run `sallyport packet router down`, and `router up` again; \
         the kernel forwards in between"
    )]
    OtherLayout(PathBuf),
    /// The tables of the NAT are too small.
    #[error(
        "the tables of the NAT that stands have room for {room} sessions, and {wanted} are asked for: run \
         `sallyport packet router down` first, which ends the sessions"
    )]
    NatRoom {
        /// The room.
        room: u32,
        /// What is asked for.
        wanted: u32,
    },
    /// Another process reads the log of sessions.
    #[error("another `sallyport packet nat log` reads the log of this router: end it first")]
    NatLogBusy,
    /// No policy.
    #[error("the router that stands here has no policy: name one by `policy` in the file of the router")]
    NoPolicy,
    /// No NAT.
    #[error("the router that stands here has no NAT with tables of its own: put [nat] into the file of the router")]
    NoNat,
    /// A kernel without connection tracking for XDP.
    #[error(
        "this kernel has no connection tracking for XDP (bpf_xdp_ct_lookup, Linux 6.0 with CONFIG_NF_CONNTRACK): \
         use engine = \"xdp\""
    )]
    NoConntrack,
    /// The answer of the kernel.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was asked of it.
        what: String,
        /// The answer.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel does not take the programs.
    #[error("the kernel does not take the programs: {source}: {said}")]
    Load {
        /// Its answer.
        #[source]
        source: libbpf_rs::Error,
        /// Its reason.
        said: String,
    },
    /// A frame does not fit into a page.
    #[error("the MTU of {0}, or that of its peer, is too large for XDP: lower it, as by `ip link set {0} mtu 1500`")]
    MtuTooLarge(String),
    /// A pin.
    #[error("cannot {what}: {source}")]
    Pin {
        /// What was tried.
        what: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A next hop that the kernel does not probe.
    #[error("the kernel does not probe the next hop {address}, so nobody notices when it is gone: {reason}")]
    NotProbed {
        /// The next hop.
        address: std::net::IpAddr,
        /// The kernel's reason.
        reason: String,
    },
    /// A list that is never whole.
    #[error("the kernel's list of {0} has changed each time that it was read")]
    ListChanged(&'static str),
    /// Netlink.
    #[error("the kernel does not list its {what}: {reason}")]
    Netlink {
        /// What was asked for.
        what: &'static str,
        /// Its reason.
        reason: String,
    },
}

/// Refuses a process that is not root's.
///
/// # Errors
/// The process is not root's.
pub fn require_root() -> Result<(), XdpError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(XdpError::NotRoot) }
}

/// Says what was asked of the kernel.
pub(crate) fn asked(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> XdpError {
    let what = what.into();
    |source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => XdpError::NotRoot,
        _ => XdpError::Kernel { what, source },
    }
}

/// Says what was tried with a pin.
pub(crate) fn pinned(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> XdpError {
    let what = what.into();
    |source| match source.kind() {
        std::io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => XdpError::NotRoot,
        _ => XdpError::Pin { what, source },
    }
}
