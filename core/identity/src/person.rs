//! From what a provider says to the person that it vouches for.

use sallyport_model::{
    MAX_GROUP_BYTES, MAX_GROUPS, MAX_PERSON_NAME_BYTES, Person, PersonEmail, ProviderConfig, ProviderKind, ProviderName,
};
use serde_json::{Map, Value};

/// What a provider says of somebody: the claims of an ID token or of its userinfo, or the same words from an API.
pub type Claims = Map<String, Value>;

/// The longest subject, in bytes (OpenID Connect Core 1.0 section 2).
const MAX_SUBJECT_BYTES: usize = 255;

/// Why what a provider says makes nobody somebody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PersonError {
    /// No e-mail address at all.
    #[error(
        "the provider gave no e-mail address: let it give the scope `email`, and have an address in the account there"
    )]
    NoEmail,
    /// The address is not one that is known to be the person's.
    #[error("the provider does not vouch for the e-mail address {0}: verify it there first")]
    Unverified(String),
    /// The address is no address.
    #[error("the provider gave {0:?}, which is no e-mail address that can be used here")]
    BadEmail(String),
    /// Nothing says who it is.
    #[error("the provider did not say whom it means (the claim `sub`)")]
    NoSubject,
    /// Rules about groups could not be believed with only some of them.
    #[error("the provider gave more than {MAX_GROUPS} groups: let it give those that matter here")]
    TooManyGroups,
}

/// The person of these claims. Only an e-mail address that the provider has verified counts.
///
/// # Errors
/// What is missing in the claims.
pub fn person(config: &ProviderConfig, provider: &ProviderName, claims: &Claims) -> Result<Person, PersonError> {
    let subject = text(claims, "sub")
        .filter(|sub| (1..=MAX_SUBJECT_BYTES).contains(&sub.len()) && !sub.chars().any(char::is_control))
        .ok_or(PersonError::NoSubject)?;
    Ok(Person {
        email: verified_email(config, claims)?,
        name: text(claims, "name").and_then(shown_name),
        groups: groups(config, claims)?,
        provider: provider.clone(),
        subject: subject.to_owned(),
    })
}

fn text<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// What a claim that is yes or no says; some providers write it as text, and Microsoft as a number.
fn yes_or_no(claims: &Claims, name: &str) -> Option<bool> {
    match claims.get(name)? {
        Value::Bool(says) => Some(*says),
        Value::String(says) if says == "true" || says == "1" => Some(true),
        Value::Number(says) if says.as_u64() == Some(1) => Some(true),
        Value::Null => None,
        // Whatever else it is, it is no yes.
        _ => Some(false),
    }
}

fn verified_email(config: &ProviderConfig, claims: &Claims) -> Result<PersonEmail, PersonError> {
    let listed = claims.get("verified_primary_email").and_then(Value::as_array);
    let listed = listed.and_then(|addresses| addresses.first()).and_then(Value::as_str);
    let (email, says) = match (config.kind, listed) {
        (ProviderKind::Microsoft, Some(listed)) => (listed, Some(true)),
        // `email` alone is what anybody may write into a directory of their own.
        (ProviderKind::Microsoft, None) => {
            (text(claims, "email").ok_or(PersonError::NoEmail)?, yes_or_no(claims, "xms_edov"))
        }
        (ProviderKind::Google, _) => {
            let email = text(claims, "email").ok_or(PersonError::NoEmail)?;
            // Google verified other addresses once, and does not know who has them now: only for its own domains and
            // those of its customers it is the authority.
            let lower = email.to_ascii_lowercase();
            let is_googles = lower.ends_with("@gmail.com") || lower.ends_with("@googlemail.com");
            let is_authority = is_googles || text(claims, "hd").is_some();
            let says = yes_or_no(claims, "email_verified");
            (email, if is_authority || says != Some(true) { says } else { None })
        }
        _ => (text(claims, "email").ok_or(PersonError::NoEmail)?, yes_or_no(claims, "email_verified")),
    };
    let shown = || email.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
    if says != Some(true) && !(says.is_none() && config.trust_email) {
        return Err(PersonError::Unverified(shown()));
    }
    email.parse().map_err(|_| PersonError::BadEmail(shown()))
}

/// The name without what is no text, cut to its bound.
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

fn groups(config: &ProviderConfig, claims: &Claims) -> Result<Vec<String>, PersonError> {
    let Some(name) = config.groups_claim.as_deref() else { return Ok(Vec::new()) };
    let found = claims.get(name).or_else(|| {
        let (first, rest) = name.strip_prefix('/')?.split_once('/')?;
        claims.get(first)?.pointer(&format!("/{rest}"))
    });
    let listed: Vec<&str> = match found {
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(group)) => vec![group],
        _ => Vec::new(),
    };
    // A comma would make two groups of one where they are written in a list.
    let is_name = |group: &&str| {
        (1..=MAX_GROUP_BYTES).contains(&group.len()) && !group.chars().any(|c| c.is_control() || c == ',')
    };
    let groups: Vec<String> = listed.into_iter().filter(is_name).map(str::to_owned).collect();
    if groups.len() > MAX_GROUPS { Err(PersonError::TooManyGroups) } else { Ok(groups) }
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
            let said = json!({"sub": "1", "email": bad, "email_verified": true});
            assert!(matches!(of(&config(ProviderKind::Oidc), said), Err(PersonError::BadEmail(_))), "{bad}");
        }
    }

    #[test]
    fn google_speaks_for_its_own_domains_and_its_customers() {
        let google = config(ProviderKind::Google);
        let said = |email: &str, hd: Option<&str>| {
            let mut said = json!({"sub": "1", "email": email, "email_verified": true});
            if let Some(hd) = hd {
                said["hd"] = json!(hd);
            }
            of(&google, said)
        };
        assert!(said("a@gmail.com", None).is_ok() && said("a@mycorp.com", Some("mycorp.com")).is_ok());
        assert!(matches!(said("a@mycorp.com", None), Err(PersonError::Unverified(_))));
        let unverified = json!({"sub": "1", "email": "a@mycorp.com", "email_verified": false, "hd": "mycorp.com"});
        assert!(of(&ProviderConfig { trust_email: true, ..google }, unverified).is_err());
    }

    #[test]
    fn microsoft_says_by_its_own_claims_what_it_has_verified() {
        let microsoft = config(ProviderKind::Microsoft);
        let said = |mut more: Value| {
            more["sub"] = json!("1");
            of(&microsoft, more)
        };
        assert!(said(json!({"email": "ceo@mycorp.com"})).is_err());
        assert!(
            said(json!({"email": "ceo@mycorp.com", "email_verified": true})).is_err(),
            "a claim of another language"
        );
        for yes in [json!(true), json!("1"), json!(1), json!("true")] {
            assert!(said(json!({"email": "ceo@mycorp.com", "xms_edov": yes})).is_ok());
        }
        for no in [json!(false), json!("0"), json!(0)] {
            assert!(said(json!({"email": "ceo@mycorp.com", "xms_edov": no})).is_err());
        }
        let listed = json!({"email": "x@evil.test", "verified_primary_email": ["a@mycorp.com"]});
        assert_eq!(said(listed).unwrap().email.as_str(), "a@mycorp.com");
    }

    #[test]
    fn names_and_groups_are_bounded_and_cannot_become_others() {
        let said = |groups: Value| json!({"sub": "1", "email": "a@b.de", "email_verified": true, "groups": groups});
        let plain = config(ProviderKind::Oidc);
        let mut odd = said(json!(["eng", "a,admins", "b\r\nx", "", "x".repeat(129), 7]));
        odd["name"] = json!(format!(" Ann\r\n{}", "\u{e9}".repeat(300)));
        let person = of(&plain, odd).unwrap();
        assert_eq!(person.groups, ["eng"]);
        let name = person.name.unwrap();
        assert!(name.starts_with("Ann\u{e9}") && name.len() <= MAX_PERSON_NAME_BYTES, "{name}");
        assert_eq!(of(&plain, said(json!("one"))).unwrap().groups, ["one"]);
        assert!(of(&plain, said(json!({"a": 1}))).unwrap().groups.is_empty());
        let many: Vec<String> = (0..=MAX_GROUPS).map(|n| format!("g{n}")).collect();
        assert_eq!(of(&plain, said(json!(many))), Err(PersonError::TooManyGroups));
        let nested = ProviderConfig { groups_claim: Some("/realm_access/roles".into()), ..plain.clone() };
        let mut deep = said(json!(["no"]));
        deep["realm_access"] = json!({"roles": ["yes"]});
        assert_eq!(of(&nested, deep).unwrap().groups, ["yes"]);
        assert!(of(&ProviderConfig { groups_claim: None, ..plain }, said(json!(["eng"]))).unwrap().groups.is_empty());
    }
}
