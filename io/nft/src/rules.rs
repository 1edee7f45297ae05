//! Tables, their counters, and scripts that change them, by `nft`.

use std::io;

use serde::Deserialize;

use crate::program::{self, PATIENCE, Trouble};

/// The longest script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 32 << 20;

/// Why rules were not set, or not read.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// There is no `nft`.
    #[error("the program nft is not there: install the package nftables")]
    Missing,
    /// It does not run.
    #[error("nft does not run: {0}")]
    Run(#[source] io::Error),
    /// It takes too long.
    #[error("nft has not ended within {} s", PATIENCE.as_secs())]
    TooSlow,
    /// It refuses the script.
    #[error("nft refuses the rules: {0}")]
    Refused(String),
    /// The script is too long.
    #[error("{0} bytes of rules are more than {MAX_SCRIPT_BYTES}")]
    TooLong(usize),
    /// It prints what is not understood.
    #[error("what nft prints is not understood: {0}")]
    Unreadable(String),
}

impl From<Trouble> for NftError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Missing => Self::Missing,
            Trouble::Run(error) => Self::Run(error),
            Trouble::TooSlow => Self::TooSlow,
            Trouble::Refused(said) => Self::Refused(said),
            Trouble::TooMuch => Self::Unreadable("it is too long".to_owned()),
        }
    }
}

/// A named counter of a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Counter {
    /// The name.
    pub name: String,
    /// How many packets were counted.
    pub packets: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// Has `nft` run this script: all of it or nothing.
///
/// # Errors
/// `nft` is not there, or refuses the script: the former rules stay.
pub async fn apply(script: &str) -> Result<(), NftError> {
    run(script, &["-f", "-"]).await
}

/// Has `nft` and the kernel judge this script, and changes nothing.
///
/// # Errors
/// `nft` is not there, or refuses the script.
pub async fn check(script: &str) -> Result<(), NftError> {
    run(script, &["--check", "-f", "-"]).await
}

/// Names of all tables of a family, such as `inet` or `ip`.
///
/// # Errors
/// `nft` is not there, or may not list.
pub async fn tables(family: &str) -> Result<Vec<String>, NftError> {
    let entries = list(&["list", "tables", family]).await?;
    Ok(entries.into_iter().filter_map(|entry| entry.table).map(|table| table.name).collect())
}

/// The named counters of a table of the family inet.
///
/// # Errors
/// `nft` is not there, or there is no such table.
pub async fn counters(table: &str) -> Result<Vec<Counter>, NftError> {
    let entries = list(&["list", "counters", "table", "inet", table]).await?;
    Ok(entries.into_iter().filter_map(|entry| entry.counter).collect())
}

/// What `nft` lists, as libnftables-json(5) describes it.
#[derive(Debug, Deserialize)]
struct Listing {
    nftables: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(default)]
    table: Option<Table>,
    #[serde(default)]
    counter: Option<Counter>,
}

#[derive(Debug, Deserialize)]
struct Table {
    name: String,
}

async fn list(args: &[&str]) -> Result<Vec<Entry>, NftError> {
    let args: Vec<_> = ["--json"].iter().chain(args).copied().collect();
    let text = program::read("nft", &args).await?;
    let listing: Listing = serde_json::from_str(&text).map_err(|error| NftError::Unreadable(error.to_string()))?;
    Ok(listing.nftables)
}

async fn run(script: &str, args: &[&str]) -> Result<(), NftError> {
    if script.len() > MAX_SCRIPT_BYTES {
        return Err(NftError::TooLong(script.len()));
    }
    Ok(program::feed("nft", args, script).await?)
}
