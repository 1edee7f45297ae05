//! Probes of this machine, of a hostile host, and without privileges.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use sallyport_probe::{
    Counts, DEFAULT_DATA_BYTES, Family, MAX_DATA_BYTES, ProbeError, Prober, Rejected, Source, connect,
};
use socket2::{Domain, Socket, Type};

use crate::{
    hostile::{self, Manner},
    networks::{FarNetwork, Sockets, run_within, wait_until},
};

/// Longer than an answer takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Enough for the replies that come, since others do not.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);
/// How many packets may have no stamp at the beginning.
const MAX_UNSTAMPED: u32 = 1_000;
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn loopback(family: Family) -> IpAddr {
    if family == Family::V4 { [127, 0, 0, 1].into() } else { "::1".parse().unwrap() }
}

/// Waits until the kernel stamps packets, which it begins to do some time after it was asked. It does not end while the
/// returned prober is there.
async fn stamping() -> Prober {
    let prober = Prober::new().unwrap();
    for _ in 0..MAX_UNSTAMPED {
        if prober.echo(loopback(Family::V4), TIMEOUT).await.unwrap().source == Source::Kernel {
            return prober;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the kernel does not stamp packets");
}

#[test]
fn this_machine_answers_by_ping_sockets() {
    run_within(Sockets::Ping, &[], "paths::within_this_machine");
}

#[test]
fn this_machine_answers_by_raw_sockets() {
    run_within(Sockets::Raw, &[], "paths::within_this_machine");
}

#[test]
fn ping_sockets_need_no_privileges() {
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    run_within(Sockets::Ping, &nobody, "paths::within_this_machine");
}

#[test]
fn without_ping_sockets_and_privileges_one_sentence_says_how_to_get_them() {
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    run_within(Sockets::Raw, &nobody, "paths::within_a_closed_machine");
}

#[test]
fn a_hostile_host_fools_nobody_by_ping_sockets() {
    run_within(Sockets::Ping, &[], "paths::within_a_hostile_network");
}

#[test]
fn a_hostile_host_fools_nobody_by_raw_sockets() {
    run_within(Sockets::Raw, &[], "paths::within_a_hostile_network");
}

#[tokio::test]
#[ignore = "runs within the networks of other tests"]
async fn within_this_machine() {
    /// How many echoes run at the same time.
    const ECHOES: usize = 32;
    let _stamping = stamping().await;
    let prober = Arc::new(Prober::new().unwrap());
    for family in FAMILIES {
        let target = loopback(family);
        for bytes in [16, DEFAULT_DATA_BYTES, 1_472, MAX_DATA_BYTES] {
            let answer = prober.echo_of(bytes, target, TIMEOUT).await.unwrap();
            assert_eq!(answer.source, Source::Kernel, "{target}, {bytes} bytes");
        }
        let spawn = |_| {
            let prober = prober.clone();
            tokio::spawn(async move { prober.echo(target, TIMEOUT).await.unwrap().source })
        };
        let echoes: Vec<_> = (0..ECHOES).map(spawn).collect();
        for echo in echoes {
            assert_eq!(echo.await.unwrap(), Source::Kernel);
        }
    }
    let answered = 2 * (ECHOES as u64 + 4);
    assert_eq!(prober.counts(), Counts { answered, ..Counts::default() });

    for bytes in [0, 15, MAX_DATA_BYTES + 1] {
        let error = prober.echo_of(bytes, loopback(Family::V4), TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), "an echo request has from 16 to 65507 bytes of data");
    }
    for address in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
        let error = prober.echo(address.parse().unwrap(), TIMEOUT).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{address} is not the address of one host"));
    }
    let error = prober.echo("192.0.2.1".parse().unwrap(), TIMEOUT).await.unwrap_err();
    assert!(matches!(error, ProbeError::Unreachable { .. }), "{error:?}");
    // A send that failed has not shifted the stamps.
    assert_eq!(prober.echo(loopback(Family::V4), TIMEOUT).await.unwrap().source, Source::Kernel);
}

#[tokio::test]
#[ignore = "runs within the network of another test"]
async fn within_a_closed_machine() {
    let prober = Prober::new().unwrap();
    for family in FAMILIES {
        let error = prober.echo(loopback(family), TIMEOUT).await.unwrap_err();
        assert!(matches!(error, ProbeError::NotAllowed), "{error:?}");
        assert_eq!(
            error.to_string(),
            "echo requests are not allowed here: open ping sockets with \
             `sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`, or run as root"
        );
    }
}

/// Whether the right reply comes in time.
fn has_answer(manner: Manner) -> bool {
    matches!(manner, Manner::Honest | Manner::Forging | Manner::Doubling)
}

#[tokio::test]
#[ignore = "runs within the networks of other tests"]
async fn within_a_hostile_network() {
    /// How often the responder shows all its manners.
    const ROUNDS: u64 = 2;
    let _stamping = stamping().await;
    let far = FarNetwork::new();
    for family in FAMILIES {
        let target = hostile::addresses(family)[0];
        let _responder = hostile::start(&far, family);
        let prober = Prober::new().unwrap();
        // Requests follow each other, so their sequence numbers are those of a new prober.
        for sequence in 0..ROUNDS as u16 * Manner::ALL.len() as u16 {
            let manner = Manner::of(sequence);
            let timeout = if has_answer(manner) { TIMEOUT } else { SHORT_TIMEOUT };
            match prober.echo(target, timeout).await {
                Ok(answer) => {
                    assert!(has_answer(manner), "{sequence}: {manner:?}");
                    assert_eq!(answer.source, Source::Kernel, "{sequence}: {manner:?}");
                }
                Err(ProbeError::NoAnswer { .. }) => assert!(!has_answer(manner), "{sequence}: {manner:?}"),
                Err(error) => panic!("{sequence}: {manner:?}: {error:?}"),
            }
        }
        // The last late reply comes before the reply to this request.
        prober.echo(target, TIMEOUT).await.unwrap();
        let (forged, duplicates, late) = (ROUNDS, ROUNDS, ROUNDS);
        let (truncated, other_sender, damaged) = (ROUNDS, ROUNDS, 0);
        let rejected = Rejected { forged, duplicates, late, truncated, other_sender, damaged };
        let expected = Counts { answered: 3 * ROUNDS + 1, rejected, ..Counts::default() };
        wait_until("right counters", || (prober.counts() == expected).then_some(()));
    }
}

#[tokio::test]
async fn connects_are_measured_and_a_refusal_is_an_answer() {
    for loopback in FAMILIES.map(loopback) {
        let listener = TcpListener::bind((loopback, 0)).unwrap();
        assert!(!connect(listener.local_addr().unwrap(), TIMEOUT).await.unwrap().is_refused);
        // A port that is taken, and at which nothing listens.
        let closed = Socket::new(Domain::for_address((loopback, 0).into()), Type::STREAM, None).unwrap();
        closed.bind(&SocketAddr::new(loopback, 0).into()).unwrap();
        let address = closed.local_addr().unwrap().as_socket().unwrap();
        assert!(connect(address, TIMEOUT).await.unwrap().is_refused);
    }
    let error = connect(SocketAddr::from(([255, 255, 255, 255], 1)), TIMEOUT).await.unwrap_err();
    assert!(matches!(error, ProbeError::Unreachable { .. }), "{error:?}");
}
