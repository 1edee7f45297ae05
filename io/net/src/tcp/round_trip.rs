//! The round trip of a connection, as the kernel measures it.

use std::time::Duration;

use tokio::net::TcpStream;

/// The shortest round trip of a connection so far (TCP_INFO); `None` if the kernel knows none.
#[must_use]
pub fn shortest_round_trip(stream: &TcpStream) -> Option<Duration> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return linux::shortest_round_trip(stream);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = stream;
        None
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    //! The option is read up to the field that is wanted, so that its length is the same with all kernels.

    use std::time::Duration;

    use nix::{
        getsockopt_impl, libc,
        sys::socket::{GetSockOpt as _, sockopt::GetStruct},
    };
    use tokio::net::TcpStream;

    /// Where `tcpi_min_rtt` is within `struct tcp_info`, in bytes. The layout is that of the kernel's interface, and
    /// the same for all processors; kernels before 4.6 do not have the field.
    const MIN_RTT_AT: usize = 148;
    /// The length of the struct up to the end of that field.
    const INFO_BYTES: usize = MIN_RTT_AT + 4;

    /// The beginning of `struct tcp_info`.
    #[derive(Debug, Clone, Copy)]
    struct TcpInfo;

    getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, [u8; INFO_BYTES], GetStruct<[u8; INFO_BYTES]>);

    pub(super) fn shortest_round_trip(stream: &TcpStream) -> Option<Duration> {
        let info = TcpInfo.get(stream).ok()?;
        let us = u32::from_ne_bytes(*info.last_chunk()?);
        // Without a sample the field has all bits.
        (us > 0 && us != u32::MAX).then(|| Duration::from_micros(us.into()))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_field_is_where_the_system_has_it() {
            assert_eq!(std::mem::offset_of!(libc::tcp_info, tcpi_min_rtt), MIN_RTT_AT);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn the_kernel_tells_the_round_trip_of_a_connection_and_of_an_ended_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"hello").await.unwrap();
        near.read_exact(&mut [0; 5]).await.unwrap();
        let is_sound =
            |time: Option<Duration>| time.is_some_and(|time| time > Duration::ZERO && time < Duration::from_secs(1));
        assert!(is_sound(shortest_round_trip(&far)));
        near.set_zero_linger().unwrap();
        drop(near);
        assert!(far.read(&mut [0; 1]).await.is_err(), "the connection was reset");
        assert!(is_sound(shortest_round_trip(&far)));
    }
}
