//! Organisations: the roles of members.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Scope, ScopeSet};

/// A member's role. Each role includes the permissions of the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads sockets, tunnels, access settings and members.
    Viewer,
    /// Creates, changes and serves sockets and tunnels.
    Member,
    /// Manages access and members, except owners; reads the audit log.
    Admin,
    /// Manages owners, too.
    Owner,
}

impl Role {
    /// Every role, from the least permissions to the most.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Admin, Self::Owner];

    /// The role as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The permissions of the role, an upper bound for the member's tokens. `account:...` concerns a person's own
    /// things, and belongs to every role.
    #[must_use]
    pub fn scopes(self) -> ScopeSet {
        let needs = |scope: &Scope| Self::needed_for(*scope) <= self;
        ScopeSet::from(Scope::ALL.into_iter().filter(needs).collect::<Vec<_>>())
    }

    /// The lowest role with this scope: the complete permission table.
    #[must_use]
    pub fn needed_for(scope: Scope) -> Self {
        match scope {
            Scope::AccountRead
            | Scope::AccountWrite
            | Scope::SocketsRead
            | Scope::IdentityRead
            | Scope::OrganisationRead => Self::Viewer,
            Scope::SocketsWrite | Scope::TunnelsConnect => Self::Member,
            Scope::IdentityWrite | Scope::OrganisationWrite | Scope::AuditRead => Self::Admin,
        }
    }

    /// Whether a member with this role may grant and revoke the given role.
    #[must_use]
    pub fn may_give(self, role: Self) -> bool {
        match self {
            Self::Owner => true,
            Self::Admin => role != Self::Owner,
            Self::Member | Self::Viewer => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role: use viewer, member, admin or owner")]
pub struct UnknownRole(pub String);

impl FromStr for Role {
    type Err = UnknownRole;
    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| UnknownRole(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The permission table, written out a second time.
    #[test]
    fn each_role_may_what_the_table_says_and_nothing_else() {
        let table = [
            (Scope::AccountRead, [true, true, true, true]),
            (Scope::AccountWrite, [true, true, true, true]),
            (Scope::SocketsRead, [true, true, true, true]),
            (Scope::SocketsWrite, [false, true, true, true]),
            (Scope::TunnelsConnect, [false, true, true, true]),
            (Scope::IdentityRead, [true, true, true, true]),
            (Scope::IdentityWrite, [false, false, true, true]),
            (Scope::AuditRead, [false, false, true, true]),
            (Scope::OrganisationRead, [true, true, true, true]),
            (Scope::OrganisationWrite, [false, false, true, true]),
        ];
        assert_eq!(table.map(|(scope, _)| scope), Scope::ALL, "every scope stands in the table");
        for (scope, may) in table {
            assert_eq!(Role::ALL.map(|role| role.scopes().allows(scope)), may, "{scope}");
        }
        assert_eq!(Role::Owner.scopes(), ScopeSet::all());
    }

    #[test]
    fn a_role_may_what_the_ones_below_it_may() {
        for two in Role::ALL.windows(2) {
            assert!(two[0] < two[1]);
            assert!(two[1].scopes().covers(&two[0].scopes()), "{} {}", two[0], two[1]);
        }
    }

    #[test]
    fn only_owners_make_and_unmake_owners() {
        for (giver, may) in [
            (Role::Viewer, [false; 4]),
            (Role::Member, [false; 4]),
            (Role::Admin, [true, true, true, false]),
            (Role::Owner, [true; 4]),
        ] {
            assert_eq!(Role::ALL.map(|role| giver.may_give(role)), may, "{giver}");
        }
    }

    #[test]
    fn a_token_does_no_more_than_its_role_and_no_more_than_itself() {
        let writes = ScopeSet::from(vec![Scope::SocketsWrite, Scope::IdentityWrite]);
        let of_viewer = writes.common_with(&Role::Viewer.scopes());
        assert!(of_viewer.allows(Scope::SocketsRead) && of_viewer.allows(Scope::IdentityRead));
        for scope in [Scope::SocketsWrite, Scope::TunnelsConnect, Scope::IdentityWrite, Scope::AccountRead] {
            assert!(!of_viewer.allows(scope), "{scope}");
        }
        for role in Role::ALL {
            for token in [ScopeSet::all(), writes.clone(), ScopeSet::default()] {
                let both = token.common_with(&role.scopes());
                for scope in Scope::ALL {
                    assert_eq!(
                        both.allows(scope),
                        token.allows(scope) && role.scopes().allows(scope),
                        "{role} {scope}"
                    );
                }
            }
        }
    }

    #[test]
    fn roles_are_written_the_same_in_json_and_text() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
            assert_eq!(role.to_string().parse::<Role>(), Ok(role));
        }
        assert!("Owner".parse::<Role>().unwrap_err().to_string().contains("\"Owner\" is not a role"));
    }
}
