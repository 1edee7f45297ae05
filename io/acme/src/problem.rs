//! Problem documents (RFC 7807) of a CA, and the errors of the ACME library, become an [`AcmeError`].

use instant_acme::{Problem, Subproblem};

use crate::{AcmeError, error::harmless};

/// The prefix of the types of ACME's own problems.
const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";
/// Bound on the subproblems that an error repeats.
const MAX_SUBPROBLEMS: usize = 3;

/// The type without its prefix.
pub(crate) fn short_type(problem_type: Option<&str>) -> String {
    let problem_type = problem_type.unwrap_or("no type");
    harmless(problem_type.strip_prefix(TYPE_PREFIX).unwrap_or(problem_type))
}

/// The CA's words, those about single names included.
pub(crate) fn detail(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_else(|| "the CA gives no reason".to_owned());
    for subproblem in problem.subproblems.iter().take(MAX_SUBPROBLEMS) {
        text.push_str("; ");
        text.push_str(&name_of(subproblem).unwrap_or_default());
        text.push_str(": ");
        text.push_str(subproblem.detail.as_deref().unwrap_or("no reason"));
    }
    harmless(&text)
}

/// The error that this problem with this status is.
pub(crate) fn of_problem(problem: &Problem, status: u16, retry_after_seconds: Option<u64>) -> AcmeError {
    let detail = detail(problem);
    let has_type = |wanted: &str| {
        short_type(problem.r#type.as_deref()) == wanted
            || problem.subproblems.iter().any(|part| short_type(part.r#type.as_deref()) == wanted)
    };
    match status {
        429 => AcmeError::RateLimited { retry_after_seconds, detail },
        500.. => AcmeError::Server { status, retry_after_seconds, detail },
        _ if has_type("rateLimited") => AcmeError::RateLimited { retry_after_seconds, detail },
        _ if has_type("caa") => AcmeError::Caa { name: refused_name(problem), detail },
        _ if has_type("alreadyReplaced") => AcmeError::AlreadyReplaced { detail },
        _ => AcmeError::Rejected { problem_type: short_type(problem.r#type.as_deref()), status, detail },
    }
}

fn refused_name(problem: &Problem) -> String {
    problem.subproblems.iter().find_map(name_of).unwrap_or_else(|| "a name of the order".to_owned())
}

fn name_of(subproblem: &Subproblem) -> Option<String> {
    Some(harmless(&subproblem.identifier.as_ref()?.authorized(false).to_string()))
}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error as Inner;
        match error {
            // The errors of our own calls come back through the library.
            Inner::Other(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(other) => Self::malformed(harmless(&other.to_string())),
            },
            Inner::Api(problem) => of_problem(&problem, problem.status.unwrap_or(400), None),
            Inner::Crypto | Inner::KeyRejected => Self::Config("the key of the ACME account cannot be used".to_owned()),
            other => Self::malformed(harmless(&other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Problem {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn problems_become_the_errors_that_the_schedule_knows() {
        let caa = problem(
            r#"{"type":"urn:ietf:params:acme:error:compound","detail":"Some names","subproblems":[
                {"type":"urn:ietf:params:acme:error:caa","detail":"CAA record for a.test prevents issuance",
                 "identifier":{"type":"dns","value":"a.test"}}]}"#,
        );
        let error = of_problem(&caa, 403, None);
        assert!(matches!(&error, AcmeError::Caa { name, .. } if name == "a.test"), "{error}");
        assert_eq!(
            error.to_string(),
            "a CAA record forbids this CA for a.test: Some names; a.test: CAA record for a.test prevents issuance"
        );
        let limited = problem(r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}"#);
        assert!(matches!(
            of_problem(&limited, 429, Some(7)),
            AcmeError::RateLimited { retry_after_seconds: Some(7), .. }
        ));
        assert!(matches!(of_problem(&limited, 503, None), AcmeError::Server { status: 503, .. }));
        let replaced = problem(r#"{"type":"urn:ietf:params:acme:error:alreadyReplaced"}"#);
        assert!(matches!(of_problem(&replaced, 409, None), AcmeError::AlreadyReplaced { .. }));
        let bare = of_problem(&problem("{}"), 404, None);
        assert_eq!(bare.to_string(), "the CA refused the request with status 404 (no type): the CA gives no reason");
    }

    #[test]
    fn control_characters_of_a_ca_are_left_out() {
        let bad = problem("{\"detail\":\"a\\u001b[31mb\\n\\u0000c\"}");
        assert_eq!(detail(&bad), "a[31mbc");
        let long = problem(&format!("{{\"detail\":\"{}\"}}", "x".repeat(100_000)));
        assert_eq!(detail(&long).len(), 500);
    }
}
