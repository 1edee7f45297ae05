//! Derives a [`Person`] from the claims of an identity provider.

use sallyport_model::{
    MAX_GROUP_BYTES, MAX_GROUPS, MAX_PERSON_NAME_BYTES, Person, PersonEmail, ProviderConfig, ProviderKind,
    ProviderName, misleads,
};
use serde_json::{Map, Value};

use crate::assertion::{MAX_HEADER_GROUPS_BYTES, header_groups};

/// Claims of an ID token or of userinfo, or the same fields of an API.
pub type Claims = Map<String, Value>;

/// The longest subject, in bytes (OpenID Connect Core 1.0 section 2).
const MAX_SUBJECT_BYTES: usize = 255;

/// Reason why claims yield no person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PersonError {
    /// The e-mail address is missing.
    #[error(
        "the provider gave no e-mail address: let it give the scope `email`, and have an address in the account there"
    )]
    NoEmail,
    /// The address is not verified.
    #[error("the provider does not vouch for the e-mail address {0}: verify it there first")]
    Unverified(String),
    /// The address is malformed.
    #[error("the provider gave {0:?}, which is not a usable e-mail address")]
    BadEmail(String),
    /// The subject is missing.
    #[error("the provider gave no subject (the claim `sub`)")]
    NoSubject,
    /// Too many groups: rules about groups need all of them.
    #[error("the provider gave more than {MAX_GROUPS} groups: let it give those that matter here")]
    TooManyGroups,
    /// The groups are too long to be sent to origins completely.
    #[error(
        "the groups that the provider gave have more than {MAX_HEADER_GROUPS_BYTES} bytes together: let it give those \
         that matter here"
    )]
    GroupsTooLong,
    /// The provider has the groups but does not send them.
    #[error("the provider has more groups of this account than it gives: let it give those that matter here")]
    GroupsElsewhere,
    /// A group is malformed.
    #[error(
        "the provider gave groups that cannot be kept to ({0}): let it give names, or take them from another claim"
    )]
    BadGroups(String),
}

/// Derives the person from these claims. Only a verified e-mail address counts.
///
/// # Errors
/// The missing or invalid claim.
pub fn person(config: &ProviderConfig, provider: &ProviderName, claims: &Claims) -> Result<Person, PersonError> {
    let subject = text(claims, "sub")
        .filter(|sub| (1..=MAX_SUBJECT_BYTES).contains(&sub.len()) && !sub.chars().any(char::is_control))
        .ok_or(PersonError::NoSubject)?;
    Ok(Person {
        email: verified_email(config, claims)?,
        name: text(claims, "name").and_then(shown_name),
        groups: groups(config, claims)?,
        groups_stated: config.states_groups(),
        provider: provider.clone(),
        subject: subject.to_owned(),
    })
}

fn text<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The value of a boolean claim; some providers send it as text, and Microsoft as a number.
fn yes_or_no(claims: &Claims, name: &str) -> Option<bool> {
    match claims.get(name)? {
        Value::Bool(says) => Some(*says),
        Value::String(says) if says == "true" || says == "1" => Some(true),
        Value::Number(says) if says.as_u64() == Some(1) => Some(true),
        Value::Null => None,
        // Any other value counts as false.
        _ => Some(false),
    }
}

fn verified_email(config: &ProviderConfig, claims: &Claims) -> Result<PersonEmail, PersonError> {
    let listed = claims.get("verified_primary_email").and_then(Value::as_array);
    let listed = listed.and_then(|addresses| addresses.first()).and_then(Value::as_str);
    let (email, says) = match (config.kind, listed) {
        (ProviderKind::Microsoft, Some(listed)) => (listed, Some(true)),
        // `email` alone is what anybody may write into their own directory.
        (ProviderKind::Microsoft, None) => {
            (text(claims, "email").ok_or(PersonError::NoEmail)?, yes_or_no(claims, "xms_edov"))
        }
        (ProviderKind::Google, _) => {
            let email = text(claims, "email").ok_or(PersonError::NoEmail)?;
            // Google verified other addresses at one time, and does not know their current owner. Google is the
            // authority only for its own domains and those of its customers.
            let lower = email.to_ascii_lowercase();
            let is_googles = lower.ends_with("@gmail.com") || lower.ends_with("@googlemail.com");
            let is_authority = is_googles || text(claims, "hd").is_some();
            let says = yes_or_no(claims, "email_verified");
            (email, if is_authority || says != Some(true) { says } else { None })
        }
        _ => (text(claims, "email").ok_or(PersonError::NoEmail)?, yes_or_no(claims, "email_verified")),
    };
    if says != Some(true) && !(says.is_none() && config.trust_email) {
        return Err(PersonError::Unverified(shown(email)));
    }
    email.parse().map_err(|_| PersonError::BadEmail(shown(email)))
}

/// The name without control characters, cut to its bound.
fn shown_name(name: &str) -> Option<String> {
    let mut shown = String::new();
    for letter in name.trim().chars().filter(|letter| !letter.is_control()) {
        if shown.len() + letter.len_utf8() > MAX_PERSON_NAME_BYTES {
            break;
        }
        shown.push(letter);
    }
    (!shown.is_empty()).then_some(shown)
}

/// The parts of a JSON pointer to a claim (RFC 6901), or of a claim's name.
fn claim_path(name: &str) -> Vec<String> {
    match name.strip_prefix('/') {
        Some(pointer) => pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect(),
        None => vec![name.to_owned()],
    }
}

/// The claim at this path; `None` if it is absent.
fn claim_at<'a>(claims: &'a Claims, name: &str) -> Result<Option<&'a Value>, PersonError> {
    if let Some(found) = claims.get(name) {
        return Ok(Some(found));
    }
    let path = claim_path(name);
    let mut parts = path.iter();
    let mut found = parts.next().and_then(|first| claims.get(first));
    for part in parts {
        found = match found {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(inner)) => inner.get(part),
            Some(_) => return Err(PersonError::BadGroups(format!("there is no object on the way to {}", shown(name)))),
        };
    }
    Ok(found)
}

/// Adds the groups of further claims of the same person: groups of both sources count alike.
///
/// A claim of groups is malformed.
/// What is there is no claim of groups.
pub fn join_groups(config: &ProviderConfig, claims: &mut Claims, more: &Claims) -> Result<(), PersonError> {
    let Some(name) = config.groups_claim.as_deref() else { return Ok(()) };
    let list = |value: &Value| match value {
        Value::Array(entries) => entries.clone(),
        Value::Null => Vec::new(),
        other => vec![other.clone()],
    };
    let (ours, theirs) = (claim_at(claims, name)?.map(list), claim_at(more, name)?.map(list));
    let Some(all) = ours.into_iter().chain(theirs).reduce(|ours, theirs| [ours, theirs].concat()) else {
        return Ok(());
    };
    // Under the whole name, which is looked up first.
    claims.insert(name.to_owned(), Value::Array(all));
    Ok(())
}

/// Whether these claims have groups, so that no further request is needed.
#[must_use]
pub fn has_groups(config: &ProviderConfig, claims: &Claims) -> bool {
    config.groups_claim.as_deref().is_none_or(|name| !matches!(claim_at(claims, name), Ok(None)))
}

/// All groups of the claims. None is left out, because a rule may deny that one.
fn groups(config: &ProviderConfig, claims: &Claims) -> Result<Vec<String>, PersonError> {
    let Some(name) = config.groups_claim.as_deref() else { return Ok(Vec::new()) };
    let bad = |reason: String| PersonError::BadGroups(reason);
    let Some(found) = claim_at(claims, name)? else {
        // Too many for a token: the provider names another source (OpenID Connect Core 1.0 section 5.6.2).
        let elsewhere = claims.get("_claim_names").and_then(Value::as_object);
        let is_elsewhere =
            elsewhere.is_some_and(|names| claim_path(name).first().is_some_and(|at| names.contains_key(at)));
        let has_more = yes_or_no(claims, "hasgroups") == Some(true);
        return if is_elsewhere || has_more { Err(PersonError::GroupsElsewhere) } else { Ok(Vec::new()) };
    };
    let listed: Vec<&Value> = match found {
        Value::Array(groups) => groups.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    };
    if listed.len() > MAX_GROUPS {
        return Err(PersonError::TooManyGroups);
    }
    let mut groups = Vec::with_capacity(listed.len());
    for group in listed {
        let group = match group {
            Value::String(group) => group.clone(),
            Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
            other => return Err(bad(format!("{} is not a name", shown(&other.to_string())))),
        };
        if group.is_empty() || group.len() > MAX_GROUP_BYTES || group.chars().any(char::is_control) {
            let reason =
                format!("{:?} is not a name of 1 to {MAX_GROUP_BYTES} bytes without control characters", shown(&group));
            return Err(bad(reason));
        }
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    if header_groups(&groups).is_none() { Err(PersonError::GroupsTooLong) } else { Ok(groups) }
}

/// A text of the provider, shortened for a message.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !misleads(*letter)).take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(kind: ProviderKind) -> ProviderConfig {
        ProviderConfig {
            kind,
            issuer: None,
            tenant: None,
            client_id: "c".to_owned(),
            scopes: Vec::new(),
            groups_claim: Some("groups".to_owned()),
            trust_email: false,
            ca_pem: None,
            hook: None,
            require_totp: false,
            check_minutes: None,
        }
    }

    fn of(config: &ProviderConfig, claims: Value) -> Result<Person, PersonError> {
        let Value::Object(claims) = claims else { unreachable!() };
        person(config, &"dex".parse().unwrap(), &claims)
    }

    #[test]
    fn only_a_verified_address_makes_a_person() {
        let plain = config(ProviderKind::Oidc);
        for yes in [json!(true), json!("true")] {
            let person = of(&plain, json!({"sub": "1", "email": "Ann+x@Example.COM", "email_verified": yes})).unwrap();
            assert_eq!(person.email.as_str(), "ann+x@example.com");
        }
        for no in [json!(false), json!("false"), json!("TRUE"), json!("yes"), json!([true]), json!({}), json!(null)] {
            let refused = of(&plain, json!({"sub": "1", "email": "a@example.com", "email_verified": no})).unwrap_err();
            assert!(matches!(refused, PersonError::Unverified(_)), "{no}");
        }
        let silent = json!({"sub": "1", "email": "a@example.com"});
        assert!(matches!(of(&plain, silent.clone()), Err(PersonError::Unverified(_))));
        let trusting = ProviderConfig { trust_email: true, ..plain.clone() };
        assert!(of(&trusting, silent).is_ok());
        let denied = json!({"sub": "1", "email": "a@example.com", "email_verified": false});
        assert!(of(&trusting, denied).is_err(), "what the provider denies is never believed");
        assert_eq!(of(&plain, json!({"sub": "1", "email_verified": true})), Err(PersonError::NoEmail));
        assert_eq!(of(&plain, json!({"email": "a@example.com", "email_verified": true})), Err(PersonError::NoSubject));
    }

    #[test]
    fn addresses_that_only_look_right_are_refused() {
        for bad in
            ["a@example.com.", "\u{430}nn@example.com", "a@ex\u{430}mple.com", "a@example.com\u{200b}", "a b@c.de"]
        {
            let checked = json!({"sub": "1", "email": bad, "email_verified": true});
            assert!(matches!(of(&config(ProviderKind::Oidc), checked), Err(PersonError::BadEmail(_))), "{bad}");
        }
    }

    #[test]
    fn google_speaks_for_its_own_domains_and_its_customers() {
        let google = config(ProviderKind::Google);
        let checked = |email: &str, hd: Option<&str>| {
            let mut checked = json!({"sub": "1", "email": email, "email_verified": true});
            if let Some(hd) = hd {
                checked["hd"] = json!(hd);
            }
            of(&google, checked)
        };
        assert!(checked("a@gmail.com", None).is_ok() && checked("a@mycorp.com", Some("mycorp.com")).is_ok());
        assert!(matches!(checked("a@mycorp.com", None), Err(PersonError::Unverified(_))));
        let unverified = json!({"sub": "1", "email": "a@mycorp.com", "email_verified": false, "hd": "mycorp.com"});
        assert!(of(&ProviderConfig { trust_email: true, ..google }, unverified).is_err());
    }

    #[test]
    fn microsoft_says_by_its_own_claims_what_it_has_verified() {
        let microsoft = config(ProviderKind::Microsoft);
        let checked = |mut more: Value| {
            more["sub"] = json!("1");
            of(&microsoft, more)
        };
        assert!(checked(json!({"email": "ceo@mycorp.com"})).is_err());
        assert!(
            checked(json!({"email": "ceo@mycorp.com", "email_verified": true})).is_err(),
            "a claim of another language"
        );
        for yes in [json!(true), json!("1"), json!(1), json!("true")] {
            assert!(checked(json!({"email": "ceo@mycorp.com", "xms_edov": yes})).is_ok());
        }
        for no in [json!(false), json!("0"), json!(0)] {
            assert!(checked(json!({"email": "ceo@mycorp.com", "xms_edov": no})).is_err());
        }
        let listed = json!({"email": "x@evil.test", "verified_primary_email": ["a@mycorp.com"]});
        assert_eq!(checked(listed).unwrap().email.as_str(), "a@mycorp.com");
    }

    #[test]
    fn names_and_groups_are_bounded_and_cannot_become_others() {
        let checked = |groups: Value| json!({"sub": "1", "email": "a@b.de", "email_verified": true, "groups": groups});
        let plain = config(ProviderKind::Oidc);
        let mut odd = checked(json!(["eng", "CN=leavers,OU=x", "eng", 7, " a b "]));
        odd["name"] = json!(format!(" Ann\r\n{}", "\u{e9}".repeat(300)));
        let person = of(&plain, odd).unwrap();
        assert_eq!(person.groups, ["eng", "CN=leavers,OU=x", "7", " a b "], "all of them, and none made two of");
        assert!(person.groups_stated);
        let name = person.name.unwrap();
        assert!(name.starts_with("Ann\u{e9}") && name.len() <= MAX_PERSON_NAME_BYTES, "{name}");
        assert_eq!(of(&plain, checked(json!("one, two"))).unwrap().groups, ["one, two"]);
        for none in [json!([]), json!(null)] {
            assert!(of(&plain, checked(none)).unwrap().groups.is_empty());
        }
        for bad in [
            json!({"admin": {"org": "1"}}),
            json!(["eng", {"name": "leavers"}]),
            json!(["eng", ["leavers"]]),
            json!(["eng", null]),
            json!([1.5]),
            json!([true]),
            json!(false),
            json!(["b\r\nx"]),
            json!([""]),
            json!(["x".repeat(MAX_GROUP_BYTES + 1)]),
        ] {
            assert!(matches!(of(&plain, checked(bad.clone())), Err(PersonError::BadGroups(_))), "{bad}");
        }
        let many: Vec<String> = (0..=MAX_GROUPS).map(|n| format!("g{n}")).collect();
        assert_eq!(of(&plain, checked(json!(many))), Err(PersonError::TooManyGroups));
        let long: Vec<String> = (0..10).map(|n| format!("{n}{}", "x".repeat(MAX_GROUP_BYTES - 1))).collect();
        assert_eq!(of(&plain, checked(json!(long))), Err(PersonError::GroupsTooLong));
        let nested = ProviderConfig { groups_claim: Some("/realm_access/roles".into()), ..plain.clone() };
        let mut deep = checked(json!(["no"]));
        deep["realm_access"] = json!({"roles": ["yes"]});
        assert_eq!(of(&nested, deep.clone()).unwrap().groups, ["yes"]);
        let top = ProviderConfig { groups_claim: Some("/groups".into()), ..plain.clone() };
        assert_eq!(of(&top, checked(json!(["yes"]))).unwrap().groups, ["yes"]);
        deep["realm_access"] = json!("roles");
        assert!(matches!(of(&nested, deep), Err(PersonError::BadGroups(_))));
        let silent = of(&ProviderConfig { groups_claim: None, ..plain }, checked(json!(["eng"]))).unwrap();
        assert!(silent.groups.is_empty() && !silent.groups_stated);
    }

    #[test]
    fn groups_that_the_provider_keeps_elsewhere_are_not_none() {
        let plain = config(ProviderKind::Microsoft);
        let checked = |more: Value| {
            let mut checked = json!({"sub": "1", "email": "a@b.de", "xms_edov": true});
            checked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            of(&plain, checked)
        };
        let overage =
            json!({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}});
        assert_eq!(checked(overage), Err(PersonError::GroupsElsewhere));
        assert_eq!(checked(json!({"hasgroups": true})), Err(PersonError::GroupsElsewhere));
        assert!(checked(json!({"_claim_names": {"address": "src1"}})).unwrap().groups.is_empty());
    }

    #[test]
    fn what_is_stated_in_two_places_counts_twice() {
        let joined = |claim: &str, ours: Value, theirs: Value| {
            let config = ProviderConfig { groups_claim: Some(claim.to_owned()), ..config(ProviderKind::Oidc) };
            let (Value::Object(mut ours), Value::Object(theirs)) = (ours, theirs) else { unreachable!() };
            join_groups(&config, &mut ours, &theirs).unwrap();
            groups(&config, &ours).unwrap()
        };
        assert_eq!(joined("groups", json!({"groups": "a"}), json!({"groups": ["b", "a"]})), ["a", "b"]);
        assert_eq!(joined("groups", json!({}), json!({"groups": ["b"]})), ["b"]);
        assert!(joined("groups", json!({}), json!({})).is_empty());
        assert_eq!(joined("/x/y", json!({"x": {"y": ["a"]}}), json!({"x": {"y": ["b"]}})), ["a", "b"]);
    }
}
