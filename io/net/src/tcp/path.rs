//! The path of a connection, as the kernel sees it.

use std::time::Duration;

/// What the kernel knows of the path of a TCP connection (TCP_INFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpPath {
    /// The smoothed round trip.
    pub rtt: Duration,
    /// The largest packet of the path, in bytes, with its IP header.
    pub mtu_bytes: u32,
    /// The bytes of a segment's header: with timestamps if both ends send them (RFC 7323).
    pub header_bytes: u32,
    /// Segments with data that were sent, those that were sent again included.
    pub sent_segments: u32,
    /// Segments that were sent again.
    pub sent_again_segments: u32,
}

/// The path of the connection of this socket; `None` where the kernel does not tell it.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[must_use]
pub fn tcp_path(socket: &impl std::os::fd::AsFd) -> Option<TcpPath> {
    linux::tcp_path(socket)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    //! The option is read up to the last field that is wanted, so that its length is the same with all kernels.

    use std::{os::fd::AsFd, time::Duration};

    use nix::{
        getsockopt_impl, libc,
        sys::socket::{GetSockOpt as _, sockopt::GetStruct},
    };

    use super::TcpPath;

    /// Where fields are within `struct tcp_info`, in bytes. Kernels before 4.6 do not have the last one.
    pub(super) const OPTIONS_AT: usize = 5;
    pub(super) const MTU_AT: usize = 60;
    pub(super) const RTT_AT: usize = 68;
    pub(super) const SENT_AGAIN_AT: usize = 100;
    pub(super) const SENT_AT: usize = 156;
    /// The bit of the options that says that there are timestamps (TCPI_OPT_TIMESTAMPS).
    const HAS_TIMESTAMPS: u8 = 1;
    /// The length of the struct up to the end of the last one.
    const INFO_BYTES: usize = SENT_AT + 4;

    /// The beginning of `struct tcp_info`.
    #[derive(Debug, Clone, Copy)]
    struct TcpInfo;

    getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, [u8; INFO_BYTES], GetStruct<[u8; INFO_BYTES]>);

    pub(super) fn tcp_path(socket: &impl AsFd) -> Option<TcpPath> {
        let info = TcpInfo.get(socket).ok()?;
        let field = |at: usize| info.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four));
        Some(TcpPath {
            rtt: Duration::from_micros(field(RTT_AT)?.into()),
            mtu_bytes: field(MTU_AT)?,
            header_bytes: 20 + if info[OPTIONS_AT] & HAS_TIMESTAMPS != 0 { 12 } else { 0 },
            sent_segments: field(SENT_AT)?,
            sent_again_segments: field(SENT_AGAIN_AT)?,
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        mem::offset_of,
        net::{TcpListener, TcpStream},
    };

    use nix::libc::tcp_info;

    use super::*;

    #[test]
    fn the_fields_are_where_the_system_has_them() {
        let of_system = [
            offset_of!(tcp_info, tcpi_options),
            offset_of!(tcp_info, tcpi_pmtu),
            offset_of!(tcp_info, tcpi_rtt),
            offset_of!(tcp_info, tcpi_total_retrans),
            offset_of!(tcp_info, tcpi_data_segs_out),
        ];
        let ours = [linux::OPTIONS_AT, linux::MTU_AT, linux::RTT_AT, linux::SENT_AGAIN_AT, linux::SENT_AT];
        assert_eq!(ours, of_system);
    }

    #[test]
    fn a_connection_over_loopback_has_the_mtu_of_the_device() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"hello").unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
        let path = tcp_path(&near).unwrap();
        let mtu: u32 = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        // No packet of IPv4 is longer than 65,535 bytes (RFC 791 section 3.1).
        assert_eq!((path.mtu_bytes, path.sent_again_segments), (mtu.min(65_535), 0));
        assert!(path.sent_segments >= 1 && path.rtt > Duration::ZERO, "{path:?}");
        assert!([20, 32].contains(&path.header_bytes), "{path:?}");
    }
}
