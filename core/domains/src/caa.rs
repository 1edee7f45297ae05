//! Which authorities may sign for a name: CAA records (RFC 8659).

/// A CAA record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaaRecord {
    /// Whether an authority that does not know the tag must refuse.
    pub is_critical: bool,
    /// The tag, such as `issue`.
    pub tag: String,
    /// The value, such as `letsencrypt.org`.
    pub value: String,
}

/// Whether an authority may sign for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaaVerdict {
    /// The authority may sign.
    Allowed,
    /// A record forbids it: this one, as in a zone file.
    Forbidden(String),
}

/// Whether an authority with these identities may sign, by the nearest record set of the name.
///
//= RFC 8659 section 4.2
//# the Property issuewild … takes precedence over the issue Property when specified … for wildcard
#[must_use]
pub fn caa_verdict(records: &[CaaRecord], identities: &[String], is_wildcard: bool) -> CaaVerdict {
    let shown = |record: &CaaRecord| format!("CAA 0 {} \"{}\"", record.tag, record.value);
    let tagged = |tag: &str| records.iter().filter(|r| r.tag.eq_ignore_ascii_case(tag)).collect::<Vec<_>>();
    let known = ["issue", "issuewild", "iodef", "issuemail", "issuevmc", "contactemail", "contactphone"];
    let is_known = |record: &CaaRecord| known.iter().any(|tag| record.tag.eq_ignore_ascii_case(tag));
    if let Some(unknown) = records.iter().find(|record| record.is_critical && !is_known(record)) {
        return CaaVerdict::Forbidden(shown(unknown));
    }
    let wild = if is_wildcard { tagged("issuewild") } else { Vec::new() };
    let relevant = if wild.is_empty() { tagged("issue") } else { wild };
    let names = |record: &CaaRecord| {
        let domain = record.value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        identities.iter().any(|identity| identity.eq_ignore_ascii_case(&domain))
    };
    match relevant.first() {
        Some(first) if !relevant.iter().any(|record| names(record)) => CaaVerdict::Forbidden(shown(first)),
        _ => CaaVerdict::Allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_record_set_decides() {
        let record = |tag: &str, value: &str| CaaRecord { is_critical: false, tag: tag.into(), value: value.into() };
        let ours = ["ca.example".to_owned()];
        let allowed = |records: &[CaaRecord], wild| caa_verdict(records, &ours, wild) == CaaVerdict::Allowed;
        assert!(allowed(&[], false));
        assert!(allowed(&[record("issue", "CA.example; accounturi=x")], true));
        assert!(allowed(&[record("issue", "other.example"), record("issue", "ca.example")], false));
        assert!(allowed(&[record("iodef", "mailto:a@b.example")], false), "it limits nobody");
        assert!(allowed(&[record("issue", "ca.example"), record("issuewild", ";")], false));
        assert!(!allowed(&[record("issue", "ca.example"), record("issuewild", ";")], true));
        assert!(!allowed(&[record("issue", ";")], false));
        let other = caa_verdict(&[record("issue", "other.example")], &ours, false);
        assert_eq!(other, CaaVerdict::Forbidden("CAA 0 issue \"other.example\"".to_owned()));
        let critical = CaaRecord { is_critical: true, ..record("future", "x") };
        assert!(!allowed(&[critical], false));
    }
}
