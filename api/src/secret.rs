//! Secret texts, which logs never show.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A password, credential or token: it is sent and received as plain text, and hidden from `Debug` and thereby logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = Password)]
pub struct Secret(String);

impl Secret {
    /// The text itself. Every call is a place to look at when something leaks.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_secret_does_not_show_itself() {
        let login: crate::Login =
            serde_json::from_str(r#"{"email":"a@example.com","password":"hunter2-hunter2"}"#).unwrap();
        assert!(!format!("{login:?}").contains("hunter2"));
        assert_eq!(login.password.expose(), "hunter2-hunter2");
        assert!(serde_json::to_string(&login).unwrap().contains("hunter2"));
    }
}
