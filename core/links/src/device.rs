//! A network device, as far as links need to know it.

use std::net::IpAddr;

/// What a device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A device of hardware, also that of a virtual machine.
    Hardware,
    /// The loopback device.
    Loopback,
    /// The end of a tunnel that a program or the kernel keeps: TUN, TAP, WireGuard, GRE and others.
    Tunnel,
    /// Another device of software, such as a bridge, a bond, a VLAN or a pair of veth.
    Virtual,
}

impl DeviceKind {
    /// The kind as a short word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Loopback => "loopback",
            Self::Tunnel => "tunnel",
            Self::Virtual => "virtual",
        }
    }
}

/// A network device of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's number.
    pub index: u32,
    /// The name.
    pub name: String,
    /// What the device is made of.
    pub kind: DeviceKind,
    /// Whether the device is switched on and has a carrier.
    pub is_up: bool,
    /// Whether the device belongs to a bridge or a bond.
    pub is_member: bool,
    /// Whether a default route leaves by the device.
    pub has_default_route: bool,
    /// The next hops of these default routes. A route without one reaches its destinations on the link itself.
    pub gateways: Vec<IpAddr>,
    /// The MTU in bytes.
    pub mtu_bytes: u32,
    /// The addresses that reach other machines, in the kernel's order.
    pub addresses: Vec<IpAddr>,
}
