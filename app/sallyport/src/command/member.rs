//! `sallyport member`: who belongs to the organisation.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateInvitation, CreatedInvitation, Member, UpdateMember};
use sallyport_model::Role;
use serde_json::json;

use super::{confirm::YesArg, email, utc};
use crate::{
    columns::{self, Column},
    complete,
    context::Context,
    failure,
    output::{self, Output},
};

/// What can be done with members.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List those who belong to the organisation
    #[command(alias = "list")]
    Ls,
    /// Invite the account with an e-mail address; whoever has it accepts with the code that is shown
    #[command(alias = "invite")]
    Add(AddArgs),
    /// Give a member another role
    Edit(EditArgs),
    /// Send a member away, at once
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `member add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The e-mail address
    #[arg(value_name = "EMAIL")]
    email: String,
    /// What they may do: viewer, member, admin or owner
    #[arg(long)]
    role: Role,
}

/// Options of `member edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The member, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    #[arg(add = ArgValueCompleter::new(complete::members))]
    member: String,
    /// What they may do from now on: viewer, member, admin or owner
    #[arg(long)]
    role: Role,
}

/// Options of `member rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The member, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    #[arg(add = ArgValueCompleter::new(complete::members))]
    member: String,
    #[command(flatten)]
    yes: YesArg,
}

/// Does it.
pub(crate) async fn run(context: &Context, command: MemberCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        MemberCommand::Ls => {
            let members = client.members().await?;
            context.output.list(&members, "nobody belongs to it", |members| list(&context.output, members))
        }
        MemberCommand::Add(args) => {
            let create = CreateInvitation { email: email(&args.email)?, role: args.role };
            let created = client.invite(&create).await?;
            context.output.data(&created, show)?;
            context.output.hint(&format!(
                "nothing is sent: give the code to {}, who accepts within 7 days with `sallyport invitation accept CODE`; \
                 it is not shown again",
                created.details.email
            ));
            Ok(())
        }
        MemberCommand::Edit(args) => {
            let update = UpdateMember { role: args.role };
            let changed = client.update_member(&args.member, &update).await;
            let changed = changed.map_err(|error| failure::about(error, &args.member))?;
            context.output.data(&changed, |member| list(&context.output, std::slice::from_ref(member)))
        }
        MemberCommand::Rm(args) => {
            args.yes.confirm(&format!("Send {} away? Only an invitation lets them in again.", args.member))?;
            client.delete_member(&args.member).await.map_err(|error| failure::about(error, &args.member))?;
            context.output.data(&json!({ "removed": args.member }), |_| {
                output::safe(&format!("{} does not belong to the organisation any more", args.member)).into_owned()
            })
        }
    }
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
