//! Why a packet was forwarded, left to the kernel, or dropped: `enum reason` of packet/bpf/layout.h.

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// XDP sent it on.
    Forward,
    /// The kernel has it.
    Kernel,
    /// It is gone.
    Drop,
}

impl Action {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Kernel => "kernel",
            Self::Drop => "drop",
        }
    }
}

macro_rules! reasons {
    ($($name:ident $action:ident $word:literal $sentence:literal)*) => {
        /// Why it became that, in the order of `enum reason`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the sentences of the list are the documentation")]
        pub enum Reason { $($name),* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its word.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// What became of the packet.
            #[must_use]
            pub fn action(self) -> Action {
                match self { $(Self::$name => Action::$action),* }
            }

            /// What that means.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence),* }
            }
        }
    };
}

reasons! {
    Forwarded      Forward "forwarded"      "XDP sends it to the next hop"
    NotIp          Kernel  "not-ip"         "the kernel has what is neither IPv4 nor IPv6, such as ARP"
    OtherHost      Kernel  "other-host"     "the frame has the address of another host"
    NotUnicast     Kernel  "not-unicast"    "the kernel has multicast, broadcast and link-local packets"
    Options        Kernel  "options"        "the kernel processes the options of the header"
    Ttl            Kernel  "ttl"            "the time to live ends here, and the kernel sends ICMP time exceeded"
    TooBig         Kernel  "too-big"        "it is longer than the MTU: the kernel fragments it, or sends ICMP"
    Neighbor       Kernel  "neighbor"       "the next hop has no address yet, and the kernel asks for it"
    NotRouted      Kernel  "not-routed"     "it is for this machine, or no route leads there: the kernel decides"
    Unreachable    Kernel  "unreachable"    "an unreachable route: the kernel sends ICMP host unreachable"
    Prohibit       Kernel  "prohibit"       "a prohibit route: the kernel sends ICMP administratively prohibited"
    ForwardingOff  Kernel  "forwarding-off" "forwarding is off for the device that it came from"
    OtherPort      Kernel  "other-port"     "it leaves by a device that is no port of the router: the kernel forwards it"
    Unsupported    Kernel  "unsupported"    "the route has an encapsulation: the kernel forwards it"
    UnknownVlan    Kernel  "unknown-vlan"   "the port has no device for this VLAN"
    Fragment       Kernel  "fragment"       "the kernel puts the packet together, for XDP has not sent on its first fragment"
    NatProtocol    Kernel  "nat-protocol"   "the kernel translates other protocols than TCP, UDP and echo"
    NatNoMapping   Kernel  "nat-no-mapping" "it is for an address of the NAT, and no mapping of XDP has its port: the kernel decides"
    NatKernel      Kernel  "nat-kernel"     "the kernel's connection tracking has the beginning and the end of a flow"
    PolicyReject   Kernel  "policy-reject"  "a rule of the policy rejects it, and the kernel answers"
    Blackhole      Drop    "blackhole"      "a black hole route"
    Truncated      Drop    "truncated"      "the frame is shorter than its headers say"
    Malformed      Drop    "malformed"      "the header contradicts itself"
    Checksum       Drop    "checksum"       "the checksum of the header is wrong"
    Martian        Drop    "martian"        "no host has this source address"
    Urpf           Drop    "urpf"           "the source has no way back by the device that it came from"
    NoRoom         Drop    "no-room"        "the frame has no room for the tag of its VLAN"
    NatFiltered    Drop    "nat-filtered"   "the NAT lets in only peers to whom the inside has sent"
    NatPorts       Drop    "nat-ports"      "the ports of the NAT are exhausted: give it more addresses, or a larger range of ports"
    NatSessions    Drop    "nat-sessions"   "the user or the NAT has as many sessions as the file allows"
    NatNoSession   Drop    "nat-no-session" "it belongs to no session of the NAT, and can begin none"
    Policy         Drop    "policy"         "a rule of the policy drops it"
    Balanced       Forward "balanced"       "the balancer sends it to the edge of its flow"
    BalancedPair   Forward "balanced-pair"  "the balancer sends fragments and echoes to the edge of both addresses"
    Slice          Forward "slice"          "the balancer sends it to the machine that has the slice of its port"
    Site           Forward "site"           "the balancer sends it to the site that has its address"
    TooBigSent     Forward "too-big-sent"   "it is longer than the MTU, and the sender was told by ICMP"
    SecondChance   Forward "second-chance"  "its connection is not here, so it goes on to the second edge of its slot"
    CookieSent     Forward "cookie-sent"    "too many SYNs come, and this one was answered by a cookie"
    ErrorSent      Forward "error-sent"     "it ends on its way to the inside of the NAT, and the sender was told by ICMP"
    Decapsulated   Kernel  "decapsulated"   "the kernel has the packet that was inside"
    NotVirtual     Kernel  "not-virtual"    "it is for no virtual address, or was in no tunnel: the kernel decides"
    NoService      Drop    "no-service"     "the virtual address has no service at this port"
    NoEdge         Drop    "no-edge"        "no edge takes packets of this service"
    NoRoute        Drop    "no-route"       "no route leads to the edge"
    SliceFree      Drop    "slice-free"     "no machine has the slice of this port"
    SliceFragment  Drop    "slice-fragment" "a fragment to an egress address has no port to choose a machine by"
    FragmentDropped Drop   "fragment-dropped" "the file says that fragments to virtual addresses are dropped"
    TooBigDropped  Drop    "too-big-dropped" "it is longer than the MTU, and nobody answers an error or a fragment"
    Stranger       Drop    "stranger"       "the sender of the tunnel is no listed balancer, edge or site"
    Tunnel         Drop    "tunnel"         "the headers of the tunnel, or the packet inside, cannot be read"
    SiteLoop       Drop    "site-loop"      "another site has sent it, and the address is of another site again"
    NoAddress      Drop    "no-address"     "the packet inside is for an address that this machine does not have"
    Limit          Drop    "limit"          "the source has sent more than it may"
    Cookie         Drop    "cookie"         "too many SYNs come, and this one cannot be answered by a cookie"
    IcmpLimited    Drop    "icmp-limited"   "XDP has sent as many ICMP errors as it may, so the sender of this packet gets none"
    ErrorDropped   Drop    "error-dropped"  "it ends on its way to the inside of the NAT, and nobody answers an error or a fragment"
    NatOtherPort   Drop    "nat-other-port" "its session leads to a device that is no port, and the kernel does not know the session"
}

impl Reason {
    /// The reason of this number.
    pub(crate) fn of(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_same_list() {
        let header = include_str!("../../../packet/bpf/layout.h");
        let numbered = header.lines().filter_map(|line| {
            let (name, number) = line.trim().strip_prefix("REASON_")?.strip_suffix(',')?.split_once(" = ")?;
            Some((name.to_ascii_lowercase().replace('_', "-"), number.parse::<usize>().unwrap()))
        });
        let mut numbered: Vec<_> = numbered.collect();
        assert_eq!(numbered.pop().unwrap(), ("count".to_owned(), Reason::ALL.len()));
        assert_eq!(numbered.len(), Reason::ALL.len());
        for (name, number) in numbered {
            let reason = Reason::of(number).unwrap();
            assert_eq!((reason.name(), reason as usize), (name.as_str(), number));
        }
        // `action_of` of the router compares with the first number of a drop, as the other programs do with both.
        let is_drop = |number: usize| {
            (Reason::Blackhole as usize..Reason::Balanced as usize).contains(&number)
                || number >= Reason::NoService as usize
        };
        for (number, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.action() == Action::Drop, is_drop(number), "{}", reason.name());
        }
    }
}
