//! Times of a query against a million hashes, in one thread: naive, the columns of the article, and each filter.
//!
//! `RUSTFLAGS="-C target-cpu=native" cargo run --release -p sallyport-vector --example match_times [ROWS] [QUERIES]`
//!
//! Rows are random. Queries are rows with swapped bytes, as in the article, so that most have no match within 220. The
//! runs alternate, and the median of five is printed. Naive and scalar take fewer queries, because they are slow; all
//! must find the same.

use std::time::Instant;

use sallyport_hashmatch::{HASH_BYTES, Hash, Match, Threshold, nearest, search};
use sallyport_vector::{Instructions, columns};

const RUNS: usize = 5;
/// The queries of the slow ways.
const SLOW_QUERIES: usize = 16;

type Way<'a> = (&'static str, usize, Box<dyn FnMut(&[Hash]) -> Vec<Option<Match>> + 'a>);

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let (row_count, query_count) = (*numbers.first().unwrap_or(&1_000_000), *numbers.get(1).unwrap_or(&1_536));
    let mut random = Random(1);
    let rows: Vec<Hash> = (0..row_count).map(|_| [0; HASH_BYTES].map(|_: u8| random.below(256) as u8)).collect();
    let queries: Vec<Hash> = (0..query_count)
        .map(|_| {
            let mut query = rows[random.below(row_count)];
            for _ in 0..random.below(HASH_BYTES) {
                query.swap(random.below(HASH_BYTES), random.below(HASH_BYTES));
            }
            query
        })
        .collect();
    let (rows, threshold) = (rows.as_slice(), Threshold::default());
    let mut ways: Vec<Way<'_>> = vec![(
        "naive",
        SLOW_QUERIES,
        Box::new(|queries| queries.iter().map(|query| nearest(rows, query, threshold)).collect()),
    )];
    if let Some(mut filter) = columns(rows) {
        ways.push(("columns", query_count, Box::new(move |queries| search(rows, &mut *filter, queries, threshold))));
    }
    for instructions in Instructions::ALL {
        match instructions.filter(rows) {
            Some(mut filter) => ways.push((
                instructions.name(),
                if instructions == Instructions::Scalar { SLOW_QUERIES } else { query_count },
                Box::new(move |queries| search(rows, &mut *filter, queries, threshold)),
            )),
            None => println!("{}: this processor lacks it", instructions.name()),
        }
    }
    let mut times = vec![Vec::new(); ways.len()];
    let mut all_found: Vec<Vec<Option<Match>>> = Vec::new();
    for run in 0..RUNS {
        for ((_, count, way), times) in ways.iter_mut().zip(&mut times) {
            let began = Instant::now();
            let found = way(&queries[..query_count.min(*count)]);
            times.push(began.elapsed().as_secs_f64() * 1e3 / found.len() as f64);
            if run == 0 {
                all_found.push(found);
            }
        }
    }
    for ((name, _, _), times) in ways.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.4} ms a query (from {:.4} to {:.4})", times[RUNS / 2], times[0], times[RUNS - 1]);
    }
    let longest = all_found.iter().max_by_key(|found| found.len()).expect("there are ways");
    assert!(all_found.iter().all(|found| found[..] == longest[..found.len()]), "all ways find the same");
    println!("{} of {} queries match", longest.iter().flatten().count(), longest.len());
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 27) >> 16) as usize % bound
    }
}
