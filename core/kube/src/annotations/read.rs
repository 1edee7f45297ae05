//! Reads the annotations of an object.

use std::collections::BTreeMap;

use super::{
    ANNOTATION_PREFIX, ARTICLE_ANNOTATION, AnnotationError, Annotations, EXPOSE_ANNOTATION, MAX_ANNOTATION_BYTES,
    MAX_ANNOTATIONS, OPTIONS, OptionKind, OptionRule, Wish,
    nearest::nearest,
    values::{flag, shown},
};

/// The word of [`EXPOSE_ANNOTATION`] behind the prefix.
const EXPOSE: &str = "expose";

fn error(key: &str, reason: &'static str, message: String, remedy: impl Into<String>) -> AnnotationError {
    let key = key.chars().take(317).collect();
    AnnotationError { key, reason, message, remedy: remedy.into() }
}

/// What the annotations of an object say. Those of others are not looked at.
#[must_use]
pub fn annotations(all: &BTreeMap<String, String>) -> Annotations {
    let mut read = Annotations::default();
    let mut is_exposed = None;
    let mut is_of_article = false;
    let own = all.iter().filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX) || *key == ARTICLE_ANNOTATION);
    for (count, (key, value)) in own.enumerate() {
        if count >= MAX_ANNOTATIONS {
            let message = format!("the object has more than {MAX_ANNOTATIONS} annotations below {ANNOTATION_PREFIX}");
            read.errors.push(error(key, "TooManyAnnotations", message, "remove those that nobody needs"));
            break;
        }
        if value.len() > MAX_ANNOTATION_BYTES {
            let message = format!("the value has {} bytes, and may have {MAX_ANNOTATION_BYTES}", value.len());
            read.errors.push(error(key, "AnnotationTooLong", message, "put long lists into a policy"));
            continue;
        }
        if key == EXPOSE_ANNOTATION || key == ARTICLE_ANNOTATION {
            match flag(value.trim()) {
                Ok(value) if key == EXPOSE_ANNOTATION => is_exposed = Some(value),
                Ok(value) => is_of_article = value,
                Err(message) => {
                    let remedy = "write \"true\" for a public name, and \"false\" for none";
                    read.errors.push(error(key, "InvalidAnnotation", message, remedy));
                }
            }
            continue;
        }
        if let Err(refused) = one(&mut read, key, value) {
            read.errors.push(refused);
        }
    }
    read.wish = match (is_exposed, is_of_article) {
        (Some(true), _) => Wish::Expose,
        (Some(false), _) => Wish::Never,
        (None, true) => Wish::Article,
        (None, false) => Wish::None,
    };
    read
}

fn one(read: &mut Annotations, key: &str, value: &str) -> Result<(), AnnotationError> {
    let name = key.strip_prefix(ANNOTATION_PREFIX).unwrap_or_default();
    let (port, option) = match name.rsplit_once('.') {
        Some((port, option)) => (Some(port), option),
        None => (None, name),
    };
    let Some(rule) = OptionRule::of(option) else { return Err(unknown(key, port, option)) };
    if let OptionKind::Refused(why, remedy) = rule.kind {
        return Err(error(key, "UnsupportedAnnotation", why.to_owned(), remedy));
    }
    let options = match port {
        None => &mut read.general,
        Some(port) if rule.kind == OptionKind::Object => {
            let message = format!("{option} is for all ports, and not for {} alone", shown(port));
            return Err(error(key, "InvalidAnnotation", message, format!("write {ANNOTATION_PREFIX}{option}")));
        }
        Some("") => return Err(unknown(key, port, option)),
        Some(port) => read.ports.entry(port.to_owned()).or_default(),
    };
    match options.set(option, value) {
        Some(Ok(())) => Ok(()),
        Some(Err(message)) => {
            let remedy = format!("{option} takes {}", rule.value);
            Err(error(key, "InvalidAnnotation", message, remedy))
        }
        None => Err(unknown(key, port, option)),
    }
}

fn unknown(key: &str, port: Option<&str>, option: &str) -> AnnotationError {
    let known = OPTIONS.iter().filter(|rule| rule.is_settable()).map(|rule| rule.name);
    let message = match port {
        None => format!("{:?} is no option of a socket", shown(option)),
        Some(_) => format!("{:?} is no option of a port", shown(option)),
    };
    let place = port.filter(|port| !port.is_empty()).map(|port| format!("{}.", shown(port))).unwrap_or_default();
    let remedy = match nearest(option, known.chain([EXPOSE])) {
        Some(near) if near == EXPOSE => format!("did you mean {EXPOSE_ANNOTATION}?"),
        Some(near) => format!("did you mean {ANNOTATION_PREFIX}{place}{near}?"),
        None => "remove it: the options are those of `sallyport connect --help`".to_owned(),
    };
    error(key, "UnknownAnnotation", message, remedy)
}
