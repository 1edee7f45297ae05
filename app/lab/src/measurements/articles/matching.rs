//! `match`: the nearest of many hashes of 144 bytes, by comparing each, by the article's best way, and by ours with
//! each kind of instructions. One thread.

use std::time::Instant;

use sallyport_hashmatch::{HASH_BYTES, Hash, Match, Scalar, Threshold, nearest, search};
use sallyport_vector::{Instructions, columns};

use crate::{
    chance::Chance,
    measurements::{
        Scale,
        frame::{Claim, Column, Design, Measurement, Place, RunError},
    },
};

/// The queries that are compared with each row: more take long, and cost the same each.
const NAIVE_QUERIES: usize = 64;

/// How a variant searches.
#[derive(Debug, Clone, Copy)]
enum Way {
    Naive,
    Article,
    Ours(Instructions),
}

const NAIVE: &str = "naive";
const ARTICLE: &str = "the article's columns, by AVX2";
const SCALAR: &str = "ours, no special instructions";
const AVX2: &str = "ours, AVX2";
const VNNI: &str = "ours, AVX-512 VNNI";
const AMX: &str = "ours, AMX";
const VARIANTS: [(&str, Way); 6] = [
    (NAIVE, Way::Naive),
    (ARTICLE, Way::Article),
    (SCALAR, Way::Ours(Instructions::Scalar)),
    (AVX2, Way::Ours(Instructions::Avx2)),
    (VNNI, Way::Ours(Instructions::Vnni)),
    (AMX, Way::Ours(Instructions::Amx)),
];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Matching {
    rows: usize,
    queries: usize,
    rounds: u32,
    /// Made by the first run.
    data: Option<Data>,
}

#[derive(Debug)]
struct Data {
    rows: Vec<Hash>,
    queries: Vec<Hash>,
    /// What the search without special instructions finds.
    expected: Vec<Option<Match>>,
}

impl Matching {
    /// Chooses the numbers of rows and queries.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        let (rows, queries, rounds) = match scale {
            Scale::Full => (1_000_000, 1_536, 3),
            Scale::Quick => (20_000, 128, 1),
        };
        Self { rows, queries, rounds, data: None }
    }
}

impl Data {
    /// Makes random rows, and queries by swapping bytes of rows, as the article did.
    fn new(row_count: usize, query_count: usize) -> Self {
        let mut chance = Chance::new(1);
        let rows: Vec<Hash> = (0..row_count).map(|_| hash(&mut chance)).collect();
        let queries: Vec<Hash> = (0..query_count)
            .map(|_| {
                let mut query = rows[chance.below(row_count)];
                for _ in 0..chance.below(HASH_BYTES) {
                    query.swap(chance.below(HASH_BYTES), chance.below(HASH_BYTES));
                }
                query
            })
            .collect();
        let expected = search(&rows, &mut Scalar::new(&rows), &queries, Threshold::default());
        Self { rows, queries, expected }
    }
}

fn hash(chance: &mut Chance) -> Hash {
    let mut hash = [0; HASH_BYTES];
    hash.chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&chance.next().to_le_bytes()));
    hash
}

const fn place(variant: &'static str, column: &'static str) -> Place {
    Place { variant, column }
}

impl Measurement for Matching {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        let same =
            |sentence, variant| Claim::within(sentence, place(variant, "same"), place(variant, "queries"), (1.0, 1.0));
        let faster = |sentence, than, variant, times| {
            Claim::at_least(sentence, place(than, "time"), place(variant, "time"), times)
        };
        Design {
            columns: vec![column("time", "ms a query"), column("queries", ""), column("same", ""), column("near", "")],
            variants: VARIANTS.map(|(name, _)| name.to_owned()).to_vec(),
            claims: vec![
                same("comparing everything finds the same", NAIVE),
                same("the article's columns find the same", ARTICLE),
                same("AVX2 finds the same", AVX2),
                same("AVX-512 VNNI finds the same", VNNI),
                same("AMX finds the same", AMX),
                faster("the article's columns are faster than comparing everything", NAIVE, ARTICLE, 2.0),
                faster("AVX2 is several times as fast as the article's columns", ARTICLE, AVX2, 3.0),
                faster("AMX is ten times as fast as the article's columns", ARTICLE, AMX, 10.0),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let (name, way) = VARIANTS[variant];
        let (row_count, query_count) = (self.rows, self.queries);
        let Data { rows, queries, expected } = self.data.get_or_insert_with(|| Data::new(row_count, query_count));
        let filter = match way {
            Way::Naive => None,
            Way::Article => Some(columns(rows).ok_or_else(|| lacking(name))?),
            Way::Ours(instructions) => Some(instructions.filter(rows).ok_or_else(|| lacking(name))?),
        };
        let (began, threshold) = (Instant::now(), Threshold::default());
        let found: Vec<_> = match filter {
            Some(mut filter) => search(rows, &mut *filter, queries, threshold),
            None => queries.iter().take(NAIVE_QUERIES).map(|query| nearest(rows, query, threshold)).collect(),
        };
        let time = began.elapsed();
        let same = found.iter().zip(expected).filter(|(found, expected)| *found == *expected).count();
        let near = found.iter().flatten().count();
        let each_ms = time.as_secs_f64() * 1e3 / found.len() as f64;
        Ok(vec![each_ms, found.len() as f64, same as f64, near as f64])
    }
}

fn lacking(name: &str) -> RunError {
    RunError::Missing { what: format!("\"{name}\""), how: "use a processor that has these instructions" }
}
