//! `sallyport invitation`: into organisations of others, and into one's own.

use clap::{Args, Subcommand};
use sallyport_api::{AcceptInvitation, Invitation, Organisation, ReceivedInvitation};
use sallyport_client::ApiClient;
use sallyport_model::InvitationId;
use serde_json::json;

use crate::{
    command::options::pick::Pick,
    context::Context,
    failure,
    output::{self, Output},
    view::columns::{self, Column},
};

/// What can be done with invitations.
#[derive(Debug, Subcommand)]
pub(crate) enum InvitationCommand {
    /// List the invitations that you have, or those that the organisation has sent
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Accept an invitation with the code from the person who invited you
    Accept(AcceptArgs),
    /// Decline an invitation that you have
    Decline(IdArgs),
    /// Withdraw an invitation of the organisation
    Withdraw(WithdrawArgs),
}

/// Options of `invitation ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// List the invitations that the organisation has sent
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
    id: String,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: InvitationCommand) -> anyhow::Result<()> {
    let target = context.target()?;
    let own = context.client_of_self(&target)?;
    match command {
        InvitationCommand::Ls(LsArgs { sent: false }) => {
            context.output.list(&own.received_invitations().await?, "you have no invitations", |all| {
                received(&context.output, all)
            })
        }
        InvitationCommand::Ls(LsArgs { sent: true }) => {
            let empty = "no invitations are open: `sallyport member add EMAIL --role member` makes one";
            context.output.list(&context.client(&target)?.invitations().await?, empty, |all| sent(&context.output, all))
        }
        InvitationCommand::Accept(args) => {
            let joined = own.accept_invitation(&AcceptInvitation { code: args.code.trim().into() }).await?;
            context.output.data(&joined, show)?;
            context.output.hint(&format!("next: sallyport organisation use {}", joined.id));
            Ok(())
        }
        InvitationCommand::Decline(args) => {
            let id = received_as(&own, &args.id).await?;
            own.decline_invitation(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "declined": id }), |_| format!("declined {id}"))
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

/// The organisation's invitation with this id, or to this address.
async fn sent_to(client: &ApiClient, which: &str) -> anyhow::Result<InvitationId> {
    if let Ok(id) = which.parse() {
        return Ok(id);
    }
    let pick = Pick {
        what: "invitation",
        list: "sallyport invitation ls --sent",
        id: &|one: &Invitation| one.id.uuid(),
        names: &|one| vec![one.email.to_string()],
    };
    Ok(pick.find(client.invitations().await?, which)?.id)
}

/// The account's invitation with this id, or whose id begins with it.
async fn received_as(client: &ApiClient, which: &str) -> anyhow::Result<InvitationId> {
    if let Ok(id) = which.parse() {
        return Ok(id);
    }
    let pick = Pick {
        what: "invitation",
        list: "sallyport invitation ls",
        id: &|one: &ReceivedInvitation| one.id.uuid(),
        names: &|one| vec![one.organisation_name.clone()],
    };
    Ok(pick.find(client.received_invitations().await?, which)?.id)
}

fn show(joined: &Organisation) -> String {
    output::pairs(&[
        ("organisation", joined.id.to_string()),
        ("name", joined.name.clone()),
        ("your role", joined.role.to_string()),
    ])
}

fn received(output: &Output, invitations: &[ReceivedInvitation]) -> String {
    columns::table(
        output,
        [
            Column::Cut("NAME"),
            Column::Plain("ROLE"),
            Column::Plain("EXPIRES"),
            Column::Wide("ORGANISATION"),
            Column::Id("ID"),
        ],
        invitations.iter().map(|one| {
            let name = one.organisation_name.clone();
            let (role, ends) = (one.role.to_string(), columns::minute(one.expires_at));
            [name, role, ends, one.organisation.to_string(), one.id.to_string()]
        }),
    )
}

fn sent(output: &Output, invitations: &[Invitation]) -> String {
    columns::table(
        output,
        [Column::Cut("E-MAIL"), Column::Plain("ROLE"), Column::Plain("EXPIRES"), Column::Id("ID")],
        invitations.iter().map(|one| {
            [one.email.to_string(), one.role.to_string(), columns::minute(one.expires_at), one.id.to_string()]
        }),
    )
}
