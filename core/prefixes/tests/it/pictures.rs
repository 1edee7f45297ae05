//! Pictures: every prefix is where the curve has it, and any set fits the bound.

use sallyport_prefixes::{AddressSet, Ranges, ReadOptions, draw, read};

fn drawn(text: &str) -> String {
    draw(&read(text.as_bytes(), &ReadOptions::default()).unwrap().set, None, "Holdings of <A & B>")
}

#[test]
fn prefixes_are_squares_in_the_place_of_their_first_octet() {
    let svg = drawn("0.0.0.0/8\n255.0.0.0/8\n1.0.0.0/9\n");
    assert!(svg.contains("<title>Holdings of &lt;A &amp; B&gt;</title>"), "the title is escaped");
    assert!(svg.contains("M0 0h64v64h-64z"), "0.0.0.0/8 is the first corner");
    assert!(svg.contains("M960 0h64v64h-64z"), "255.0.0.0/8 is the last corner");
    assert_eq!(svg.matches("h32v32h-32z").count(), 2, "a /9 is two squares");
    assert!(svg.contains(">IPv4: 0.0.0.0/0<") && !svg.contains(">IPv6:"));
}

#[test]
fn small_prefixes_are_pale_and_ipv6_is_drawn_within_its_prefix() {
    let svg = drawn("192.0.2.0/24\n2001:db8::/34\n2001:db8:c000::/34\n");
    assert!(svg.contains("fill-opacity=\"0.2\" d=\"M"), "a /24 is less than a quarter of a cell");
    assert!(svg.contains(">IPv6: 2001:db8::/32<"), "the longest prefix around the set");
    assert_eq!(svg.matches("h512v512h-512z").count(), 2);
    assert!(drawn("2001:db8::1").contains(">IPv6: 2001:db8::/110<"));
}

#[test]
fn a_set_in_the_most_pieces_fits_the_bound() {
    let v4 = Ranges::new((0..1 << 18).map(|cell: u32| (cell << 14, (cell << 14) + 1)).collect());
    let v6 = Ranges::new((0..1 << 18).map(|cell: u128| (cell << 110, cell << 110)).collect());
    let set = AddressSet { v4, v6 };
    let bytes = draw(&set, Some(&set), "all").len();
    assert!((8_000_000..30_000_000).contains(&bytes), "{bytes} bytes");
}
