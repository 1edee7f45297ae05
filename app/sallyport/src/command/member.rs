//! `sallyport member`: the members of the organisation.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateInvitation, CreatedInvitation, Member, UpdateMember};
use sallyport_client::ApiAddress;
use sallyport_model::Role;
use sallyport_net::Trust;
use serde_json::json;

use super::email;
use crate::{
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with members.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the members of the organisation
    #[command(alias = "list")]
    Ls,
    /// Invite an e-mail address. The code that the command prints creates an account, or adds the existing one
    #[command(alias = "invite")]
    Add(AddArgs),
    /// Give a member another role
    Edit(EditArgs),
    /// Remove a member at once
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `member add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// The role: viewer, member, admin or owner
    #[arg(long)]
    role: Role,
}

/// Options of `member edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The member, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    #[arg(add = ArgValueCompleter::new(candidates::members))]
    member: String,
    /// The new role: viewer, member, admin or owner
    #[arg(long)]
    role: Role,
}

/// Options of `member rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The member, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    #[arg(add = ArgValueCompleter::new(candidates::members))]
    member: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: MemberCommand) -> anyhow::Result<()> {
    let target = context.target()?;
    let client = context.client(&target)?;
    match command {
        MemberCommand::Ls => {
            let members = client.members().await?;
            context.output.list(&members, "it has no members", |members| list(&context.output, members))
        }
        MemberCommand::Add(args) => {
            let create = CreateInvitation { email: email(&args.email)?, role: args.role };
            let created = client.invite(&create).await?;
            // Where the API has a certificate of a public authority, its own root says nothing about it.
            let has_own_root = matches!(target.trust, Trust::Ca(_) | Trust::Pinned(_));
            let info = if has_own_root { client.info().await.ok() } else { None };
            let pin = info.and_then(|info| info.ca_fingerprint);
            context.output.data(&created, show)?;
            print_invitation(context, &created, client.address(), pin.as_deref());
            Ok(())
        }
        MemberCommand::Edit(args) => {
            let update = UpdateMember { role: args.role };
            let changed = client.update_member(&args.member, &update).await;
            let changed = changed.map_err(|error| failure::about(error, &args.member))?;
            context.output.data(&changed, |member| list(&context.output, std::slice::from_ref(member)))
        }
        MemberCommand::Rm(args) => {
            args.yes.confirm(&format!(
                "Remove the member {}? Only an invitation makes them a member again.",
                args.member
            ))?;
            client.delete_member(&args.member).await.map_err(|error| failure::about(error, &args.member))?;
            context.output.data(&json!({ "removed": args.member }), |_| {
                output::safe(&format!("{} does not belong to the organisation any more", args.member)).into_owned()
            })
        }
    }
}

/// Prints how to use the code.
fn print_invitation(context: &Context, created: &CreatedInvitation, api: &ApiAddress, pin: Option<&str>) {
    let (email, code) = (&created.details.email, created.code.expose());
    if let Some(problem) = &created.problem {
        context.output.hint(&format!("no message was sent: {problem}"));
    }
    let begin = if created.sent {
        format!("{email} gets a message with it; the code is not shown again. They type")
    } else {
        format!("give this to {email}, within 7 days; the code is not shown again. They type")
    };
    let pin = pin.map(|pin| format!(" --ca-fingerprint {pin}")).unwrap_or_default();
    context.output.hint(&format!(
        "{begin}\n  sallyport account create --api {api}{pin} --name \"YOUR NAME\" --email {email} --invitation \
         {code}\nor, with an account here already,\n  sallyport invitation accept {code}"
    ));
}

fn show(created: &CreatedInvitation) -> String {
    output::pairs(&[
        ("code", created.code.expose().to_owned()),
        ("id", created.details.id.to_string()),
        ("e-mail", created.details.email.to_string()),
        ("role", created.details.role.to_string()),
        ("expires", utc(created.details.expires_at)),
    ])
}

fn list(output: &Output, members: &[Member]) -> String {
    columns::table(
        output,
        [Column::Cut("E-MAIL"), Column::Cut("NAME"), Column::Plain("ROLE"), Column::Plain("SINCE"), Column::Wide("ID")],
        members.iter().map(|member| {
            let role = if member.founder { format!("{} (founder)", member.role) } else { member.role.to_string() };
            [member.email.to_string(), member.name.clone(), role, columns::minute(member.since), member.id.to_string()]
        }),
    )
}
