//! Holdings of IP addresses: files of clouds and registries become exact sets, and sets become reports and pictures.
//! Pure: files come in as readers.
//!
//! [`read`](read()) makes a [`Source`] from one file. [`Report`] counts what many sources hold together, and
//! [`Difference`] compares two. [`draw`] makes a picture. The rooms use one another in this order: `set`, `read`,
//! `report` and `picture`.

mod picture;
mod read;
mod report;
mod set;

pub use picture::draw;
pub use read::{
    Counts, HostBits, MAX_LINE_BYTES, MAX_PREFIXES, MAX_TEXT_BYTES, PrefixError, ReadError, ReadOptions, Source,
    SourceKind, read,
};
pub use report::{
    Difference, FamilyDifference, FamilyReport, LengthCount, MAX_LISTED_PREFIXES, Named, Overlap, Part, Price,
    PriceError, Report, SourceReport,
};
pub use set::{Address, AddressSet, Ranges};
