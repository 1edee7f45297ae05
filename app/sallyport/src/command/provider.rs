//! `sallyport provider`: identity providers, which authenticate persons.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{CreateProvider, Provider, ProviderFound, Secret, UpdateProvider};
use sallyport_model::{MAX_CLIENT_SECRET_BYTES, MAX_PROVIDER_CA_BYTES, ProviderKind, ProviderName};
use serde_json::json;

use crate::{
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with identity providers.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Add an identity provider for logins to sockets with --cloudauth
    #[command(alias = "create")]
    Add(AddArgs),
    /// List the identity providers
    #[command(alias = "list")]
    Ls,
    /// Show an identity provider
    Show(NameArgs),
    /// Change an identity provider
    Edit(EditArgs),
    /// Remove an identity provider, and end all logins through it
    #[command(alias = "delete")]
    Rm(RmArgs),
    /// Test the connection to an identity provider, and show the result
    Test(NameArgs),
}

/// A provider on the command line.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The name of the provider
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(candidates::providers))]
    name: ProviderName,
}

/// Options of `provider rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    provider: NameArgs,
    /// Remove the provider even when a socket would have no login left, or persons are removed with it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `provider add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The name: lower-case letters, digits and hyphens
    #[arg(value_name = "NAME")]
    name: ProviderName,
    /// The kind: oidc, google, microsoft, github, facebook, or local (passwords in this installation) [default: NAME,
    /// when that is a kind, else oidc]
    #[arg(long, value_name = "KIND")]
    kind: Option<ProviderKind>,
    /// The client id from the provider; local has none
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    client_id: String,
    #[command(flatten)]
    settings: SettingArgs,
    /// Accept e-mail addresses that the provider does not mark as verified
    #[arg(long)]
    trust_email: bool,
    /// Require one-time codes besides passwords, for local
    #[arg(long)]
    require_totp: bool,
}

/// Options of `provider edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The name of the provider
    #[arg(value_name = "NAME")]
    name: ProviderName,
    /// Another client id; ends all logins through the provider
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    #[command(flatten)]
    settings: SettingArgs,
    /// Read no groups from claims
    #[arg(long, conflicts_with = "groups_claim")]
    no_groups: bool,
    /// Trust the system's authorities
    #[arg(long, conflicts_with = "provider_ca")]
    no_provider_ca: bool,
    /// Accept e-mail addresses that the provider does not mark as verified: true or false
    #[arg(long, value_name = "BOOL")]
    trust_email: Option<bool>,
    /// Send no messages; `person add` prints the links
    #[arg(long, conflicts_with = "verification_hook")]
    no_verification_hook: bool,
    /// Require one-time codes besides passwords, for local: true or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    require_totp: Option<bool>,
}

/// Options of both commands.
#[derive(Debug, Args)]
struct SettingArgs {
    /// The issuer, such as https://id.example.com; for github and microsoft when it is not the usual one
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The tenant id, for microsoft
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// A file with the client secret from the provider, - for the standard input
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// Scopes besides openid, email and profile; several with commas
    #[arg(long = "scope", alias = "scopes", value_name = "SCOPE", value_delimiter = ',')]
    scopes: Vec<String>,
    /// The claim that names a person's groups, or a JSON pointer to it such as /realm_access/roles
    #[arg(long, value_name = "CLAIM")]
    groups_claim: Option<String>,
    /// A PEM file with the authorities for the provider's certificate, instead of the system's
    #[arg(long, value_name = "FILE")]
    provider_ca: Option<PathBuf>,
    /// The hook that sends messages to persons, for local: it gets links by POST, in JSON
    #[arg(long, value_name = "URL")]
    verification_hook: Option<String>,
    /// A file with the secret that signs requests to the hook, - for the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "client_secret_file")]
    hook_secret_file: Option<PathBuf>,
    /// How often to ask the provider whether logins are still valid, in minutes; 0: never
    #[arg(long, value_name = "MINUTES")]
    check_minutes: Option<u16>,
}

impl SettingArgs {
    fn secret(&self) -> anyhow::Result<Option<Secret>> {
        let Some(file) = self.client_secret_file.as_ref().or(self.hook_secret_file.as_ref()) else { return Ok(None) };
        let text = read(file, MAX_CLIENT_SECRET_BYTES as u64, "secret")?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            let empty = format!("there is no secret in {}", file.display());
            return Err(Failure::usage(empty).next("leave the option out where there is none").into());
        }
        Ok(Some(text.into()))
    }

    fn ca(&self) -> anyhow::Result<Option<String>> {
        self.provider_ca
            .as_deref()
            .map(|file| read(file, MAX_PROVIDER_CA_BYTES as u64, "authority's certificate"))
            .transpose()
    }
}

/// Reads a small file of text.
fn read(file: &Path, max_bytes: u64, what: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(Failure::usage("the standard input is a terminal")
                .next(format!("name the file of the {what}"))
                .into());
        }
        let read = io::stdin().lock().take(max_bytes + 1).read_to_string(&mut text);
        read.with_context(|| format!("cannot read the {what}"))?;
    } else {
        let read = File::open(file).and_then(|opened| opened.take(max_bytes + 1).read_to_string(&mut text));
        read.map_err(|error| failure::unreadable(file, &error))?;
    }
    if text.len() as u64 > max_bytes {
        return Err(Failure::usage(format!("the {what} in {} is longer than {max_bytes} bytes", file.display())).into());
    }
    Ok(text)
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: ProviderCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        ProviderCommand::Add(args) => {
            let kind = args.kind.or_else(|| args.name.as_str().parse().ok()).unwrap_or(ProviderKind::Oidc);
            let create = CreateProvider {
                kind,
                client_secret: args.settings.secret()?,
                ca_pem: args.settings.ca()?,
                issuer: args.settings.issuer,
                tenant: args.settings.tenant,
                client_id: args.client_id,
                scopes: args.settings.scopes,
                groups_claim: args.settings.groups_claim,
                trust_email: args.trust_email,
                hook: args.settings.verification_hook,
                require_totp: args.require_totp,
                check_minutes: args.settings.check_minutes,
                name: args.name,
            };
            let provider = client.create_provider(&create).await?;
            context.output.data(&provider, show)?;
            if provider.kind == ProviderKind::Local {
                context.output.hint("next: `sallyport person add you@example.com` lets somebody log in");
                return Ok(());
            }
            context.output.hint(&format!("let the provider send people back to {}", provider.redirect_uri));
            if !provider.backchannel_logout_uri.is_empty() {
                let (logouts, back) = (&provider.backchannel_logout_uri, &provider.post_logout_redirect_uri);
                context
                    .output
                    .hint(&format!("let it send logouts to {logouts}, and send people back after a logout to {back}"));
            }
            context.output.hint(&format!("next: `sallyport provider test {}` tests the provider", provider.name));
            Ok(())
        }
        ProviderCommand::Ls => {
            let empty = "no identity providers yet: `sallyport provider add google --client-id ID --client-secret-file \
                         F` adds one";
            context.output.list(&client.providers().await?, empty, |all| list(&context.output, all))
        }
        ProviderCommand::Show(args) => {
            let provider = client.provider(&args.name).await.map_err(|error| failure::about(error, &args.name))?;
            context.output.data(&provider, show)
        }
        ProviderCommand::Edit(args) => {
            let (name, update) = update(args)?;
            let provider =
                client.update_provider(&name, &update).await.map_err(|error| failure::about(error, &name))?;
            context.output.data(&provider, show)
        }
        ProviderCommand::Rm(RmArgs { provider: args, force, yes }) => {
            let found = client.provider(&args.name).await.map_err(|error| failure::about(error, &args.name))?;
            let persons = match found.kind {
                ProviderKind::Local if force => client.persons().await?.len(),
                _ => 0,
            };
            let with_persons = if persons > 0 { format!(" with its {persons} persons") } else { String::new() };
            yes.confirm(&format!(
                "Remove the identity provider {}{with_persons}? All logins through it end.",
                args.name
            ))?;
            client.delete_provider(&args.name, force).await.map_err(|error| failure::about(error, &args.name))?;
            let gone = json!({ "deleted": args.name.as_str(), "persons": persons });
            let with_it = match persons {
                0 => String::new(),
                1 => " and 1 person".to_owned(),
                n => format!(" and {n} persons"),
            };
            let text = format!("removed {}{with_it}; all logins through it have ended", args.name);
            context.output.data(&gone, |_| text.clone())
        }
        ProviderCommand::Test(args) => {
            let found = client.test_provider(&args.name).await.map_err(|error| failure::about(error, &args.name))?;
            if !found.works {
                let is_local =
                    client.provider(&args.name).await.is_ok_and(|provider| provider.kind == ProviderKind::Local);
                let step = if is_local {
                    format!(
                        "repair it, or name another: `sallyport provider edit {} --verification-hook URL`",
                        args.name
                    )
                } else {
                    format!("see `sallyport provider show {}`", args.name)
                };
                return Err(Failure::new(Kind::Failed, found.detail).next(step).into());
            }
            context.output.data(&found, found_text)
        }
    }
}

fn update(args: EditArgs) -> anyhow::Result<(ProviderName, UpdateProvider)> {
    let groups = args.settings.groups_claim.clone();
    let (secret, ca) = (args.settings.secret()?, args.settings.ca()?);
    let update = UpdateProvider {
        issuer: args.settings.issuer.map(Some),
        tenant: args.settings.tenant,
        client_id: args.client_id,
        client_secret: secret,
        scopes: (!args.settings.scopes.is_empty()).then_some(args.settings.scopes),
        groups_claim: if args.no_groups { Some(None) } else { groups.map(Some) },
        trust_email: args.trust_email,
        ca_pem: if args.no_provider_ca { Some(None) } else { ca.map(Some) },
        hook: if args.no_verification_hook { Some(None) } else { args.settings.verification_hook.map(Some) },
        require_totp: args.require_totp,
        check_minutes: args.settings.check_minutes.map(Some),
    };
    let is_empty = serde_json::to_value(&update).is_ok_and(|fields| fields.as_object().is_none_or(|f| f.is_empty()));
    if is_empty {
        return Err(Failure::usage("nothing is to change").next("see `sallyport provider edit --help`").into());
    }
    Ok((args.name, update))
}

fn found_text(found: &ProviderFound) -> String {
    let mut rows = vec![("found", found.detail.clone())];
    rows.extend(found.authorization_endpoint.clone().map(|endpoint| ("people go to", endpoint)));
    output::pairs(&rows)
}

fn show(provider: &Provider) -> String {
    let mut rows = vec![
        ("provider", provider.name.to_string()),
        ("kind", provider.kind.to_string()),
        ("id", provider.id.to_string()),
    ];
    let mut optional = |name, value: &Option<String>| rows.extend(value.clone().map(|value| (name, value)));
    optional("issuer", &provider.issuer);
    optional("tenant", &provider.tenant);
    optional("groups claim", &provider.groups_claim);
    if !provider.scopes.is_empty() {
        rows.push(("scopes", provider.scopes.join(", ")));
    }
    if provider.kind == ProviderKind::Local {
        rows.push(("messages", provider.hook.clone().map_or("none".to_owned(), |hook| format!("by {hook}"))));
        rows.push(("codes", if provider.require_totp { "needed" } else { "as each person chooses" }.to_owned()));
    } else {
        rows.push(("client id", provider.client_id.clone()));
        rows.push(("client secret", if provider.has_secret { "kept" } else { "none" }.to_owned()));
        rows.push(("redirect address", provider.redirect_uri.clone()));
        if !provider.backchannel_logout_uri.is_empty() {
            rows.push(("back-channel logout", provider.backchannel_logout_uri.clone()));
            rows.push(("after a logout", provider.post_logout_redirect_uri.clone()));
            rows.push((
                "logins checked",
                match provider.check_minutes {
                    0 => "never".to_owned(),
                    1 => "every minute".to_owned(),
                    minutes => format!("every {minutes} minutes"),
                },
            ));
        }
    }
    if provider.trust_email {
        rows.push(("e-mail", "accepted even where the provider does not declare it verified".to_owned()));
    }
    if provider.ca_pem.is_some() {
        rows.push(("authorities", "its own".to_owned()));
    }
    rows.push(("added", utc(provider.created_at)));
    output::pairs(&rows)
}

fn list(output: &Output, providers: &[Provider]) -> String {
    columns::table(
        output,
        [
            Column::Plain("NAME"),
            Column::Plain("KIND"),
            Column::Cut("ISSUER"),
            Column::Wide("CLIENT ID"),
            Column::Plain("ADDED"),
        ],
        providers.iter().map(|provider| {
            [
                provider.name.to_string(),
                provider.kind.to_string(),
                provider.issuer.clone().unwrap_or_default(),
                provider.client_id.clone(),
                columns::minute(provider.created_at),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_without_its_line_end_and_not_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let settings = |text: &str| {
            let file = dir.path().join("secret");
            std::fs::write(&file, text).unwrap();
            SettingArgs {
                issuer: None,
                tenant: None,
                client_secret_file: Some(file),
                scopes: Vec::new(),
                groups_claim: None,
                provider_ca: None,
                verification_hook: None,
                hook_secret_file: None,
                check_minutes: None,
            }
        };
        assert_eq!(settings("s3cret\n").secret().unwrap().unwrap().expose(), "s3cret");
        assert!(settings(&"x".repeat(2_000)).secret().is_err());
        let empty = failure::describe(&settings("\n").secret().unwrap_err()).unwrap();
        assert!(empty.message.starts_with("there is no secret in "), "{}", empty.message);
    }
}
