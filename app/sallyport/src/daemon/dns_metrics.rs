//! Metrics of the name server.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use sallyport_dns::Counters;
use sallyport_zone::{AnswerKind, DropReason, Transport};

/// The counters of the name server on this machine.
#[derive(Debug)]
pub(super) struct DnsMetrics(pub(super) Arc<Counters>);

impl Collector for DnsMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counters = &self.0;
        let open = ConstGauge::new(i64::try_from(counters.tcp_open()).unwrap_or(i64::MAX));
        let help = "Open TCP connections of the name server";
        open.encode(encoder.encode_descriptor("sallyport_dns_tcp_open", help, None, open.metric_type())?)?;
        let plain = [
            ("sallyport_dns_truncated", "Answers over UDP that were cut short", counters.truncated()),
            ("sallyport_dns_bytes_in", "Bytes of queries", counters.bytes_in()),
            ("sallyport_dns_bytes_out", "Bytes of answers", counters.bytes_out()),
            ("sallyport_dns_send_errors", "Answers that the system refused", counters.send_errors()),
            ("sallyport_dns_tcp_refused", "TCP connections beyond a bound", counters.tcp_refused()),
            ("sallyport_dns_transfers", "Transfers of zones", counters.transfers()),
        ];
        for (name, help, value) in plain {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let transports = [("udp", Transport::Udp), ("tcp", Transport::Tcp)];
        let queries = transports.map(|(label, transport)| (label, counters.queries(transport)));
        family(&mut encoder, ("sallyport_dns_queries", "Queries by transport", "transport"), &queries)?;
        let answers = AnswerKind::ALL.map(|kind| (kind.label(), counters.answers(kind)));
        family(&mut encoder, ("sallyport_dns_answers", "Answers by kind", "kind"), &answers)?;
        steered(&mut encoder, counters)?;
        let drops = DropReason::ALL.map(|reason| (reason.label(), counters.drops(reason)));
        family(&mut encoder, ("sallyport_dns_drops", "Queries without an answer by reason", "reason"), &drops)
    }
}

/// Encodes the answers that were chosen for a client. There are none without steering.
fn steered(encoder: &mut DescriptorEncoder<'_>, counters: &Counters) -> Result<(), fmt::Error> {
    let help = "Answers that were chosen for a client, by region and by what the choice rests on";
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut metric = encoder.encode_descriptor("sallyport_dns_steered", help, None, kind)?;
    for (region, reason, count) in counters.steered() {
        let region = region.as_ref().map_or("", |region| region.as_str());
        let labels = [("region", region), ("reason", reason.label())];
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes counters that differ by one label.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, label): (&str, &str, &str),
    values: &[(&str, u64)],
) -> Result<(), fmt::Error> {
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, count) in values {
        let labels = [(label, *value)];
        ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
