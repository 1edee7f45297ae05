//! What limits a connection.

use serde::Serialize;

use crate::Sample;

/// What limits a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The receiver's buffer, which its application empties.
    ReceiverBuffer,
    /// The receiver's application, which does not read fast enough.
    ReceiverApplication,
    /// The sender's buffer.
    SenderBuffer,
    /// The network: the congestion window, or losses.
    Network,
    /// The sender's application, which has nothing to send.
    SenderApplication,
    /// Nothing at this end: the sender or the network.
    OtherEnd,
    /// Too little was read.
    Unknown,
}

/// What limits a connection, and the sentence that says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// What limits it.
    pub limit: Limit,
    /// One sentence for people.
    pub sentence: String,
}

impl Judgement {
    fn new(limit: Limit, sentence: String) -> Self {
        Self { limit, sentence }
    }
}

/// Judges the readings of one socket, in the order of time.
#[must_use]
pub fn judge(samples: &[Sample]) -> Judgement {
    let ends = samples.first().zip(samples.last()).filter(|(first, last)| last.at_us > first.at_us);
    let Some((first, last)) = ends else {
        return Judgement::new(Limit::Unknown, "The connection ended before it was read twice.".to_owned());
    };
    let received = last.received_bytes.saturating_sub(first.received_bytes);
    let acknowledged = last.acknowledged_bytes.saturating_sub(first.acknowledged_bytes);
    if most(samples, is_unread) {
        return unread(last);
    }
    if received > acknowledged {
        return of_receiver(first, last, received, samples);
    }
    of_sender(first, last, acknowledged, samples)
}

/// Whether more than half of the readings are so.
fn most(samples: &[Sample], is_so: impl Fn(&Sample) -> bool) -> bool {
    samples.iter().filter(|sample| is_so(sample)).count() * 2 > samples.len()
}

/// Whether the unread bytes leave no more room than they take.
fn is_unread(sample: &Sample) -> bool {
    let is_over_budget = u64::from(sample.receive_memory_bytes) * 2 >= u64::from(sample.receive_buffer_bytes);
    let room = sample.receive_window_bytes;
    sample.receive_queue_bytes > 0 && room.map_or(is_over_budget, |window| sample.receive_queue_bytes >= window)
}

fn unread(last: &Sample) -> Judgement {
    let sentence = format!(
        "The receiving application limits the flow: {} bytes wait unread, and the buffer has {} bytes.",
        last.receive_queue_bytes, last.receive_buffer_bytes
    );
    Judgement::new(Limit::ReceiverApplication, sentence)
}

fn of_receiver(first: &Sample, last: &Sample, received: u64, samples: &[Sample]) -> Judgement {
    let elapsed_us = last.at_us - first.at_us;
    let window = samples.iter().filter_map(|sample| sample.receive_window_bytes).max().unwrap_or_default();
    // A window a round trip is what this end allows.
    let per_round_trip = u128::from(received) * u128::from(last.receive_rtt_us) / u128::from(elapsed_us);
    if window > 0 && per_round_trip * 10 >= u128::from(window) * 7 {
        let sentence = format!(
            "The receiver's buffer limits the flow: a window of {window} bytes is filled in each round trip of {} us.",
            last.receive_rtt_us
        );
        return Judgement::new(Limit::ReceiverBuffer, sentence);
    }
    let out_of_order = last.out_of_order_segments.saturating_sub(first.out_of_order_segments);
    if out_of_order > 0 {
        let sentence = format!(
            "The network limits the flow: {out_of_order} segments arrived out of order, and the receiver had room."
        );
        return Judgement::new(Limit::Network, sentence);
    }
    let sentence = "Nothing at this end limits the flow: the receiver had room, so the sender or the network does.";
    Judgement::new(Limit::OtherEnd, sentence.to_owned())
}

fn of_sender(first: &Sample, last: &Sample, acknowledged: u64, samples: &[Sample]) -> Judgement {
    let elapsed = last.at_us - first.at_us;
    let busy = last.busy_us.saturating_sub(first.busy_us);
    if busy < elapsed / 2 {
        let percent = percent(busy, elapsed);
        let sentence =
            format!("The sending application limits the flow: it had something to send for {percent} % of the time.");
        return Judgement::new(Limit::SenderApplication, sentence);
    }
    let held_by_peer = last.held_by_peer_us.saturating_sub(first.held_by_peer_us);
    // What is on its way is bounded by the narrower of two windows.
    let is_narrow = u64::from(widest(samples)) * 2 <= last.congestion_window_bytes;
    let is_held = held_by_peer >= busy.div_ceil(2) || (held_by_peer > 0 && is_narrow);
    if is_held && is_mostly_closed(samples) {
        let sentence = format!(
            "The receiving application limits the flow: its window was closed or nearly so, and held back data for {} % \
             of the time.",
            percent(held_by_peer, busy)
        );
        return Judgement::new(Limit::ReceiverApplication, sentence);
    }
    let again = last.sent_again_segments.saturating_sub(first.sent_again_segments);
    let sent = last.sent_segments.saturating_sub(first.sent_segments);
    // A window stays full while a lost segment is missing. The kernel counts that time to the peer's window.
    let is_lossy = again > 0 && u64::from(again) * 50 >= u64::from(sent);
    if is_held && !is_lossy {
        let window = widest(samples);
        let sentence = format!(
            "The receiver's buffer limits the flow: its window of {window} bytes held back data for {} % of the time, at \
             a round trip of {} us.",
            percent(held_by_peer, busy),
            last.rtt_us
        );
        return Judgement::new(Limit::ReceiverBuffer, sentence);
    }
    let held_by_buffer = last.held_by_send_buffer_us.saturating_sub(first.held_by_send_buffer_us);
    if held_by_buffer >= busy.div_ceil(2) && !is_lossy {
        let sentence = format!(
            "The sender's buffer limits the flow: its {} bytes held back data for {} % of the time.",
            last.send_buffer_bytes,
            percent(held_by_buffer, busy)
        );
        return Judgement::new(Limit::SenderBuffer, sentence);
    }
    let sentence = format!(
        "The network limits the flow: {again} of {sent} segments were sent again, the congestion window is {} bytes, \
         and {acknowledged} bytes arrived.",
        last.congestion_window_bytes
    );
    Judgement::new(Limit::Network, sentence)
}

/// The widest window that the peer advertised.
fn widest(samples: &[Sample]) -> u32 {
    samples.iter().filter_map(|sample| sample.peer_window_bytes).max().unwrap_or_default()
}

/// Whether the peer's window was closed or nearly so in most readings: its application does not read.
fn is_mostly_closed(samples: &[Sample]) -> bool {
    let widest = widest(samples);
    most(samples, |sample| sample.peer_window_bytes.is_some_and(|window| window == 0 || window < widest / 4))
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or_default().min(100)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Eleven readings over a second, each made from the number of the reading.
    fn second(of: impl Fn(u64) -> Sample) -> Vec<Sample> {
        (0..=10).map(|number| Sample { at_us: number * 100_000, ..of(number) }).collect()
    }

    fn limit(samples: &[Sample], start: &str) -> Limit {
        let judgement = judge(samples);
        assert!(judgement.sentence.starts_with(start), "{}", judgement.sentence);
        judgement.limit
    }

    #[test]
    fn an_application_that_does_not_read_is_seen_from_both_ends() {
        let receiver = second(|_| Sample {
            receive_buffer_bytes: 65_536,
            receive_queue_bytes: 30_000,
            receive_window_bytes: Some(0),
            ..Sample::default()
        });
        assert_eq!(limit(&receiver, "The receiving application"), Limit::ReceiverApplication);
        let sender = second(|number| Sample {
            busy_us: number * 100_000,
            held_by_peer_us: number * 95_000,
            peer_window_bytes: Some(0),
            ..Sample::default()
        });
        assert_eq!(limit(&sender, "The receiving application"), Limit::ReceiverApplication);
    }

    #[test]
    fn a_kernel_without_windows_is_judged_by_memory() {
        let receiver = second(|_| Sample {
            receive_buffer_bytes: 65_536,
            receive_memory_bytes: 60_000,
            receive_queue_bytes: 1_000,
            ..Sample::default()
        });
        assert_eq!(limit(&receiver, "The receiving application"), Limit::ReceiverApplication);
    }

    #[test]
    fn a_buffer_that_is_read_but_small_is_seen_from_both_ends() {
        let receiver = second(|number| Sample {
            receive_window_bytes: Some(64_000),
            receive_rtt_us: 100_000,
            received_bytes: number * 60_000,
            ..Sample::default()
        });
        assert_eq!(limit(&receiver, "The receiver's buffer"), Limit::ReceiverBuffer);
        let sender = second(|number| Sample {
            busy_us: number * 100_000,
            held_by_peer_us: number * 90_000,
            peer_window_bytes: Some(64_000),
            acknowledged_bytes: number * 60_000,
            ..Sample::default()
        });
        assert_eq!(limit(&sender, "The receiver's buffer"), Limit::ReceiverBuffer);
        let narrow = sender.iter().map(|sample| Sample {
            held_by_peer_us: sample.held_by_peer_us / 9,
            congestion_window_bytes: 128_000,
            ..*sample
        });
        assert_eq!(limit(&narrow.collect::<Vec<_>>(), "The receiver's buffer"), Limit::ReceiverBuffer);
    }

    #[test]
    fn senders_are_idle_or_held_by_their_buffer_or_by_the_network() {
        let idle = second(|number| Sample { busy_us: number * 3_000, ..Sample::default() });
        assert_eq!(judge(&idle).sentence.split(": ").nth(1), Some("it had something to send for 3 % of the time."));
        assert_eq!(judge(&idle).limit, Limit::SenderApplication);
        let busy = |number: u64| Sample { busy_us: number * 99_000, ..Sample::default() };
        let buffer = second(|number| Sample { held_by_send_buffer_us: number * 70_000, ..busy(number) });
        assert_eq!(limit(&buffer, "The sender's buffer"), Limit::SenderBuffer);
        let lossy = second(|number| Sample {
            sent_segments: number as u32 * 100,
            sent_again_segments: number as u32 * 3,
            ..busy(number)
        });
        assert_eq!(limit(&lossy, "The network limits the flow: 30 of 1000 segments"), Limit::Network);
        // What waits behind a lost segment fills the window.
        let fill = |sample: &Sample| Sample { held_by_peer_us: sample.busy_us, peer_window_bytes: Some(9), ..*sample };
        let full: Vec<Sample> = lossy.iter().map(fill).collect();
        assert_eq!(limit(&full, "The network limits the flow: 30 of 1000 segments"), Limit::Network);
    }

    #[test]
    fn a_receiver_with_room_looks_to_the_network_or_the_other_end() {
        let of = |lost: u32| {
            second(|number| Sample {
                receive_window_bytes: Some(1_000_000),
                receive_rtt_us: 1_000,
                received_bytes: number * 60_000,
                out_of_order_segments: number as u32 * lost,
                ..Sample::default()
            })
        };
        assert_eq!(limit(&of(2), "The network limits the flow: 20 segments"), Limit::Network);
        assert_eq!(limit(&of(0), "Nothing at this end"), Limit::OtherEnd);
    }

    #[test]
    fn one_reading_says_nothing() {
        assert_eq!(judge(&[]).limit, Limit::Unknown);
        assert_eq!(judge(&[Sample::default()]).limit, Limit::Unknown);
    }

    proptest! {
        #[test]
        fn any_readings_get_one_sentence(
            rows in prop::collection::vec((any::<[u64; 6]>(), any::<[u32; 6]>()), 0..20),
        ) {
            let samples: Vec<Sample> = rows.into_iter().map(|(long, short)| Sample {
                at_us: long[0],
                received_bytes: long[1],
                acknowledged_bytes: long[2],
                busy_us: long[3],
                held_by_peer_us: long[4],
                held_by_send_buffer_us: long[5],
                receive_buffer_bytes: short[0],
                receive_memory_bytes: short[1],
                receive_queue_bytes: short[2],
                receive_window_bytes: Some(short[3]),
                receive_rtt_us: short[4],
                peer_window_bytes: Some(short[5]),
                ..Sample::default()
            }).collect();
            let sentence = judge(&samples).sentence;
            prop_assert!(sentence.ends_with('.') && !sentence.contains(". "), "{}", sentence);
        }
    }
}
