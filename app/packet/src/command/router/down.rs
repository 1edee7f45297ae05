//! `packet router down`: the kernel forwards again.

use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_packet_model::{filter::policy_removal, nat::nft_removal};
use sallyport_xdp::Router;

use super::up::{UpView, be_liberal};
use crate::command::kernel;

/// Takes the router down.
pub(super) async fn down(output: Output, router: &Router) -> anyhow::Result<()> {
    let (_, devices) = kernel().await?;
    let has_folder = router.pins().exists();
    let _change = has_folder.then(|| router.change()).transpose()?;
    let was_liberal = router.was_liberal();
    let had_rules = router.has_policy() || router.nat_engine().is_ok_and(|engine| engine.is_some());
    let detached = router.down(&devices);
    // Of a run that was killed, the rules may stand alone.
    let removed = sallyport_nft::apply(&[policy_removal(), nft_removal()].concat()).await;
    let detached = detached?;
    if was_liberal == Some(false) {
        be_liberal(false)?;
    }
    if let Err(error) = removed
        && had_rules
    {
        let said = format!("the router is down, and its rules are still in nftables: {error}");
        let next = "`nft delete table inet sallyport_policy` and `nft delete table ip sallyport_nat` remove them";
        return Err(Failure::new(Kind::Failed, said).next(next).into());
    }
    let view = UpView { attached: Vec::new(), replaced: Vec::new(), detached, removed: Vec::new() };
    output.data(&view, |view| match view.detached.as_slice() {
        [] => "the state is removed; no device had the program".to_owned(),
        names => format!("{}: the kernel forwards again", names.join(", ")),
    })
}
