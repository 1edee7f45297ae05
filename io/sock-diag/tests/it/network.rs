//! What limits a connection whose path loses packets, in a network namespace of its own.

use std::process::Command;

use sallyport_tcp_window::{Limit, Sample};

use crate::limits::{drain, flood, judged_once, pair};

/// The path: loopback, where one packet of ten gets lost.
const RULES: &str = "ip link set lo up && nft add table ip lossy && \
    nft 'add chain ip lossy in { type filter hook input priority 0; }' && \
    nft 'add rule ip lossy in tcp dport != 1 numgen random mod 10 == 0 drop' && exec \"$@\"";

/// How often the connection is judged until the network is what limits it.
const MAX_JUDGEMENTS: usize = 10;

#[test]
fn a_path_that_loses_packets_limits_by_the_network() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a network namespace with losses needs root");
        return;
    }
    let mut inside = Command::new("unshare");
    inside.args(["--net", "sh", "-c", RULES, "sh"]).arg(std::env::current_exe().unwrap());
    let output = inside.args(["--exact", "network::within_a_lossy_network", "--ignored", "--nocapture"]).output();
    let output = output.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
}

#[test]
#[ignore = "runs within the network of a_path_that_loses_packets_limits_by_the_network"]
fn within_a_lossy_network() {
    let (client, server) = pair(None);
    let threads = [flood(&client), drain(&server)];
    let has_losses = |first: &Sample, last: &Sample| last.sent_again_segments >= first.sent_again_segments + 5;
    // On a busy machine a reader that gets no processor may limit some of the times.
    let mut judgement = judged_once(&client, has_losses);
    for _ in 1..MAX_JUDGEMENTS {
        if judgement.limit == Limit::Network {
            break;
        }
        judgement = judged_once(&client, has_losses);
    }
    assert_eq!(judgement.limit, Limit::Network, "{}", judgement.sentence);
    assert!(!judgement.sentence.contains(": 0 of "), "{}", judgement.sentence);
    // The end of one side may be lost on its way, or may already have closed the other.
    for end in [&server, &client] {
        let _ = end.shutdown(std::net::Shutdown::Both);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
