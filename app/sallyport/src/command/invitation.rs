//! `sallyport invitation`: into organisations of others, and into one's own.

use clap::{Args, Subcommand};
use sallyport_api::{AcceptInvitation, Invitation, Organisation, ReceivedInvitation};
use sallyport_client::ApiClient;
use sallyport_model::InvitationId;
use serde_json::json;

use super::utc;
use crate::{
    context::Context,
    failure::{self, Failure, Kind},
    output,
};

/// What can be done with invitations.
#[derive(Debug, Subcommand)]
pub(crate) enum InvitationCommand {
    /// List the invitations that you have, or those that the organisation has sent
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Accept an invitation with the code that came from who has invited you
    Accept(AcceptArgs),
    /// Decline an invitation that you have
    Decline(IdArgs),
    /// Take an invitation of the organisation back
    Withdraw(WithdrawArgs),
}

/// Options of `invitation ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Those that the organisation has sent
    #[arg(long)]
    sent: bool,
}

/// Options of `invitation accept`.
#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// The code
    #[arg(value_name = "CODE")]
    code: String,
}

/// Options of `invitation withdraw`.
#[derive(Debug, Args)]
pub(crate) struct WithdrawArgs {
    /// The invitation, by its id or the e-mail address
    #[arg(value_name = "INVITATION")]
    which: String,
}

/// Options of `invitation decline`.
#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// The id of the invitation, as `invitation ls` shows it
    #[arg(value_name = "INVITATION_ID")]
    id: InvitationId,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: InvitationCommand) -> anyhow::Result<()> {
    let target = context.target()?;
    let own = context.client_of_self(&target)?;
    match command {
        InvitationCommand::Ls(LsArgs { sent: false }) => {
            context.output.list(&own.received_invitations().await?, "you have no invitations", received)
        }
        InvitationCommand::Ls(LsArgs { sent: true }) => {
            let empty = "no invitations are open: `sallyport member add EMAIL --role member` makes one";
            context.output.list(&context.client(&target)?.invitations().await?, empty, sent)
        }
        InvitationCommand::Accept(args) => {
            let joined = own.accept_invitation(&AcceptInvitation { code: args.code.trim().into() }).await?;
            context.output.data(&joined, show)?;
            context.output.hint(&format!("next: sallyport organisation use {}", joined.id));
            Ok(())
        }
        InvitationCommand::Decline(args) => {
            own.decline_invitation(args.id).await.map_err(|error| failure::about(error, &args.id))?;
            context.output.data(&json!({ "declined": args.id }), |_| format!("declined {}", args.id))
        }
        InvitationCommand::Withdraw(args) => {
            let client = context.client(&target)?;
            let id = sent_to(&client, &args.which).await?;
            client.withdraw_invitation(id).await.map_err(|error| failure::about(error, &args.which))?;
            context
                .output
                .data(&json!({ "withdrawn": id }), |_| output::safe(&format!("withdrawn {}", args.which)).into_owned())
        }
    }
}

/// The invitation of the organisation with this id, or to this address.
async fn sent_to(client: &ApiClient, which: &str) -> anyhow::Result<InvitationId> {
    if let Ok(id) = which.parse() {
        return Ok(id);
    }
    let mut sent = client.invitations().await?.into_iter();
    let found = sent.find(|one| one.email.as_str().eq_ignore_ascii_case(which.trim()));
    let missing = || {
        let failure = Failure::new(Kind::NotFound, format!("there is no such invitation: {which}"));
        failure.next("see `sallyport invitation ls --sent`")
    };
    Ok(found.ok_or_else(missing)?.id)
}

fn show(joined: &Organisation) -> String {
    output::pairs(&[
        ("organisation", joined.id.to_string()),
        ("name", joined.name.clone()),
        ("your role", joined.role.to_string()),
    ])
}

fn received(invitations: &[ReceivedInvitation]) -> String {
    output::table(
        ["ID", "ORGANISATION", "NAME", "ROLE", "EXPIRES"],
        invitations.iter().map(|one| {
            let name = one.organisation_name.clone();
            [one.id.to_string(), one.organisation.to_string(), name, one.role.to_string(), utc(one.expires_at)]
        }),
    )
}

fn sent(invitations: &[Invitation]) -> String {
    output::table(
        ["ID", "E-MAIL", "ROLE", "EXPIRES"],
        invitations
            .iter()
            .map(|one| [one.id.to_string(), one.email.to_string(), one.role.to_string(), utc(one.expires_at)]),
    )
}
