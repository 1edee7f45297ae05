//! Asks a QUIC port whether it answers, without a connection.
//!
//! The datagram has a version that no server knows, so that a server answers with the versions that it knows (RFC 9000
//! section 6.1). The answer repeats the connection IDs of the question, which nobody else has seen.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use aws_lc_rs::rand;
use tokio::{net::UdpSocket, time::Instant};

/// Length of the question, in bytes: servers ignore shorter ones (RFC 9000 section 6.1).
const QUESTION_BYTES: usize = 1_200;
/// Length of the connection IDs, in bytes.
const ID_BYTES: usize = 8;
/// A version of the pattern that is reserved to find servers that do not negotiate (RFC 9000 section 15).
const RESERVED_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1_500;
/// How often the question is repeated, because datagrams get lost.
const REPEAT_AFTER: Duration = Duration::from_millis(300);

/// Asks the port at this address. Waits for `patience` at most.
///
/// # Errors
/// Nothing answers, or the datagram cannot be sent.
pub async fn probe(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(address).await?;
    let mut ids = [0; 2 * ID_BYTES];
    rand::fill(&mut ids).map_err(|_| io::Error::other("the system gives no randomness"))?;
    let (destination, source) = ids.split_at(ID_BYTES);
    let (question, until) = (question(destination, source), Instant::now() + patience);
    let mut answer = [0; MAX_ANSWER_BYTES];
    while Instant::now() < until {
        socket.send(&question).await?;
        let repeat_at = until.min(Instant::now() + REPEAT_AFTER);
        while let Ok(received) = tokio::time::timeout_at(repeat_at, socket.recv(&mut answer)).await {
            if is_answer(answer.get(..received?).unwrap_or_default(), destination, source) {
                return Ok(());
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer over UDP")))
}

fn question(destination: &[u8], source: &[u8]) -> Vec<u8> {
    let mut question = vec![0xc0];
    question.extend_from_slice(&RESERVED_VERSION);
    for id in [destination, source] {
        question.push(ID_BYTES as u8);
        question.extend_from_slice(id);
    }
    question.resize(QUESTION_BYTES, 0);
    question
}

/// Whether the datagram is a Version Negotiation packet (RFC 9000 section 17.2.1) for the question with these IDs.
fn is_answer(datagram: &[u8], destination: &[u8], source: &[u8]) -> bool {
    let Some((first, rest)) = datagram.split_first() else { return false };
    let length = [ID_BYTES as u8];
    let expected = [&[0; 4][..], &length, source, &length, destination].concat();
    first & 0x80 != 0 && rest.strip_prefix(&expected[..]).is_some_and(|versions| versions.len() >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_the_question_counts() {
        let (destination, source) = ([1; ID_BYTES], [2; ID_BYTES]);
        let answer = [&[0x80, 0, 0, 0, 0, 8][..], &source, &[8], &destination, &[0, 0, 0, 1]].concat();
        assert!(is_answer(&answer, &destination, &source));
        assert!(!is_answer(&answer, &source, &destination), "of another question");
        assert!(!is_answer(&question(&destination, &source), &destination, &source), "the question itself");
        for cut in 0..answer.len() {
            assert!(!is_answer(&answer[..cut], &destination, &source), "{cut}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_only_listens_does_not_answer() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let error = probe(silent.local_addr().unwrap(), Duration::from_secs(2)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("does not answer over UDP"));
    }
}
