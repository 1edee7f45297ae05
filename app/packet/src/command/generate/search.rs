//! `--find-rate`: trials until the rate without loss is found.

use sallyport_cli::failure::{Failure, Kind};
use sallyport_packet_model::generate::{Found, Rate, Search, Sizes, Traffic, Trial};
use sallyport_xdp::generate::Source;

use super::{
    run::{Run, Setting},
    view::FoundView,
};

/// Finds the rate for each size, or for the mix.
pub(super) fn find(setting: &Setting<'_>, source: Source) -> anyhow::Result<()> {
    let Source::Traffic(traffic) = source else {
        return Err(Failure::usage("--find-rate sends no frames of a file").into());
    };
    let is_mix = setting.args.what.is_mix();
    let all: Vec<Sizes> = if is_mix {
        vec![traffic.sizes.clone()]
    } else {
        traffic.sizes.sizes().iter().filter_map(|size| Sizes::of(&[*size])).collect()
    };
    let mut views = Vec::with_capacity(all.len());
    for sizes in all {
        let wire = sizes.mean_wire_bytes();
        let top = setting.args.when.rate.map(|rate| rate.packets(wire));
        let found = search(setting, &Traffic { sizes: sizes.clone(), ..traffic.clone() }, top)?;
        let is_top = top.is_some_and(|top| found.rate >= top);
        views.push(FoundView::of(sizes.sizes(), wire, found, is_top));
    }
    setting.output.data(&views, |views| FoundView::table(views))
}

fn search(setting: &Setting<'_>, traffic: &Traffic, top: Option<f64>) -> anyhow::Result<Found> {
    let receive = &setting.args.receive;
    let mut search = Search::new(top, receive.precision / 100.0, receive.loss / 100.0);
    while let Some(wanted) = search.next() {
        let run = Run {
            source: Source::Traffic(traffic.clone()),
            rate: wanted.map(Rate::Packets),
            ramp: None,
            end: (None, Some(receive.trial)),
        };
        let (sent, receipt) = setting.run(run)?;
        if !sent.is_done {
            return Err(Failure::new(Kind::Failed, "stopped before the rate was found").into());
        }
        let received = receipt.map_or(0, |receipt| receipt.packets);
        let (size, rate) = (traffic.sizes.bounds().1, Rate::Packets(sent.rate()));
        let lost = sent.sent.saturating_sub(received);
        setting.output.hint(&format!("{size} bytes: {rate}, {lost} of {} lost", sent.sent));
        // A trial without two frames has no rate; what was wanted is then the best that is known.
        let sent_rate = if sent.sent > 1 { sent.rate() } else { wanted.unwrap_or_default() };
        search.take(Trial { wanted, sent_rate, sent: sent.sent, received });
    }
    search.found().ok_or_else(|| Failure::new(Kind::Failed, "the search has no end").into())
}
