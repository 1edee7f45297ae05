//! The choice of rows by their labels, which a column holds as JSON with sorted keys.

use sallyport_model::LabelSelector;

use crate::db::{error::StoreError, row, sql::Query};

/// How many labels one listing can ask for.
pub const MAX_LABEL_SELECTORS: usize = 4;

/// A statement that takes rows with all of `$4` to `$7` in their labels; an empty text is in all of them.
///
/// `replace` finds a text in both databases, with its case.
macro_rules! selected {
    ($before:literal, $column:literal, $after:literal) => {
        concat!(
            $before,
            "AND ($4 = '' OR replace(",
            $column,
            ", $4, '') <> ",
            $column,
            ")",
            "AND ($5 = '' OR replace(",
            $column,
            ", $5, '') <> ",
            $column,
            ")",
            "AND ($6 = '' OR replace(",
            $column,
            ", $6, '') <> ",
            $column,
            ")",
            "AND ($7 = '' OR replace(",
            $column,
            ", $7, '') <> ",
            $column,
            ")",
            $after
        )
    };
}
pub(crate) use selected;

/// Binds what [`selected`] takes for these selectors, after its first three values.
pub(crate) fn bind(query: Query, selectors: &[LabelSelector]) -> Result<Query, StoreError> {
    Ok(needles(selectors)?.into_iter().fold(query, Query::bind))
}

/// The texts that are in the JSON of labels exactly when the selectors match, for [`selected`].
///
/// No key or value has a bare quotation mark in JSON, so no text is found across them.
fn needles(selectors: &[LabelSelector]) -> Result<[String; MAX_LABEL_SELECTORS], StoreError> {
    if selectors.len() > MAX_LABEL_SELECTORS {
        return Err(StoreError::Limit { what: "labels to choose by at a time", max: MAX_LABEL_SELECTORS });
    }
    let mut needles = <[String; MAX_LABEL_SELECTORS]>::default();
    for (needle, LabelSelector { key, value }) in needles.iter_mut().zip(selectors) {
        let value = value.as_ref().map(row::json).transpose()?.unwrap_or_default();
        *needle = format!("{}:{value}", row::json(key)?);
    }
    Ok(needles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_only_where_its_selector_matches() {
        let labels = r#"{"a":"x\"y","env":"prod","k":"\"env\":\"dev\""}"#;
        let is_found = |text: &str| labels.contains(&needles(&[text.parse().unwrap()]).unwrap()[0]);
        assert!(is_found("env") && is_found("env=prod") && is_found("a=x\"y") && is_found("k=\"env\":\"dev\""));
        assert!(!is_found("env=dev") && !is_found("env=pro") && !is_found("nv") && !is_found("a=x") && !is_found("x"));
        assert!(needles(&vec!["a".parse().unwrap(); 5]).is_err());
    }
}
