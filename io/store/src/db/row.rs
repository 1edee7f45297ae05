//! Converts rows to the model's types. An invalid row is an error, never a guess.

use std::{fmt::Display, str::FromStr};

use sallyport_model::DisplayName;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use super::sql::{DbConnection, DbRow};
use super::{error::StoreError, open::DATABASE_FILE};

/// A column of exactly `N` bytes.
pub(crate) fn bytes<const N: usize>(row: &DbRow, column: &'static str) -> Result<[u8; N], StoreError> {
    let value: &[u8] = row.try_get(column)?;
    value.try_into().map_err(|_| damaged(column, format_args!("{} bytes instead of {N}", value.len())))
}

/// A nullable column of exactly `N` bytes.
pub(crate) fn optional_bytes<const N: usize>(row: &DbRow, column: &'static str) -> Result<Option<[u8; N]>, StoreError> {
    let value: Option<&[u8]> = row.try_get(column)?;
    let fits = |value: &[u8]| {
        value.try_into().map_err(|_| damaged(column, format_args!("{} bytes instead of {N}", value.len())))
    };
    value.map(fits).transpose()
}

/// A column of text that is parsed.
pub(crate) fn parsed<T: FromStr<Err: Display>>(row: &DbRow, column: &'static str) -> Result<T, StoreError> {
    let value: &str = row.try_get(column)?;
    value.parse().map_err(|error| damaged(column, error))
}

/// A column with a display name.
pub(crate) fn display_name(row: &DbRow, column: &'static str) -> Result<DisplayName, StoreError> {
    let value: &str = row.try_get(column)?;
    DisplayName::from_stored(value).map_err(|error| damaged(column, error))
}

/// A nullable column with a display name.
pub(crate) fn optional_display_name(row: &DbRow, column: &'static str) -> Result<Option<DisplayName>, StoreError> {
    let value: Option<&str> = row.try_get(column)?;
    value.map(DisplayName::from_stored).transpose().map_err(|error| damaged(column, error))
}

/// A column of JSON.
pub(crate) fn from_json<T: DeserializeOwned>(row: &DbRow, column: &'static str) -> Result<T, StoreError> {
    let value: &str = row.try_get(column)?;
    serde_json::from_str(value).map_err(|error| damaged(column, error))
}

/// Serializes a value to JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database(sqlx::Error::Encode(Box::new(error))))
}

/// The error of a column with an invalid value.
pub(crate) fn damaged(column: &'static str, detail: impl Display) -> StoreError {
    StoreError::Corrupt { path: DATABASE_FILE.into(), detail: format!("column {column}: {detail}") }
}
