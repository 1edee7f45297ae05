//! Messages to owners of accounts, and the address of the API as those messages write it.

use serde_json::json;
use time::format_description::well_known::Rfc3339;

use crate::{
    clock::date,
    mail::{Delivery, Message},
    problem::ApiError,
    state::App,
};

impl App {
    /// Sends a message through the server's hook, if there is one.
    pub(crate) async fn send_mail(&self, message: Message<'_>) -> Result<Delivery, ApiError> {
        let Some(mail) = &self.mail else {
            self.metrics.account_message("shown");
            return Ok(Delivery::NoHook);
        };
        let body = json!({
            "kind": message.kind,
            "email": message.email.as_str(),
            "name": message.name,
            "link": message.link,
            "code": message.code,
            "command": message.command,
            "expires_at": date(message.expires_at).format(&Rfc3339).map_err(ApiError::internal)?,
            "provider": null,
            "organisation": message.organisation,
            "organisation_name": message.organisation_name,
        });
        match mail.send(&body.to_string(), self.clock.now().unix_seconds).await {
            Ok(()) => {
                self.metrics.account_message("sent");
                Ok(Delivery::Delivered)
            }
            Err(error) => {
                self.metrics.account_message("failed");
                tracing::warn!(kind = message.kind, %error, "a message to the owner of an account was not sent");
                Ok(Delivery::Failed(error.to_string()))
            }
        }
    }

    /// The address of the API, as people type it.
    pub(crate) fn api_url(&self) -> String {
        match self.config.public_port {
            443 => format!("https://api.{}", self.config.domain),
            port => format!("https://api.{}:{port}", self.config.domain),
        }
    }
}
