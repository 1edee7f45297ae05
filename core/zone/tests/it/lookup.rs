//! Lookup in a zone: RFC 1034, 4592, 6672.

use crate::support::{Ask, Lab, zone};

const A: u16 = 1;
const NS: u16 = 2;
const TXT: u16 = 16;
const DS: u16 = 43;
const ANY: u16 = 255;
const SOA: &str = "auth example.com. 60 IN SOA ns.example.com. host.example.com. 1 3600 600 86400 60";

fn lab() -> Lab {
    Lab::new([
        zone(
            "example.com",
            "www CNAME web\nweb A 192.0.2.4\nfar CNAME www.example.net.\nlost CNAME nothing\n\
             *.wild A 192.0.2.5\n*.wild TXT wild\nhere.wild TXT here\na.b.c TXT deep\n\
             sub NS ns.sub\nsub NS ns.elsewhere.net.\nns.sub A 192.0.2.50\ninto CNAME x.sub\n\
             sub DS 1 13 2 ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB\n\
             loop CNAME loop2\nloop2 CNAME loop",
        ),
        zone("child.example.com", "www A 192.0.2.9"),
    ])
}

#[test]
fn names_and_types() {
    let mut lab = lab();
    assert_eq!(lab.text("web.example.com", A), "NoError aa; web.example.com. 300 IN A 192.0.2.4");
    assert_eq!(lab.text("web.example.com", TXT), format!("NoError aa; {SOA}"));
    assert_eq!(lab.text("nothing.example.com", A), format!("NXDomain aa; {SOA}"));
    assert_eq!(lab.text("b.c.example.com", A), format!("NoError aa; {SOA}"), "an empty non-terminal");
    assert_eq!(lab.text("example.net", A), "Refused");
    assert_eq!(lab.text("com", A), "Refused");
}

#[test]
fn letters_keep_their_case() {
    let mut lab = lab();
    let text = lab.text("wEb.ExAmple.CoM", A);
    assert_eq!(text, "NoError aa; wEb.ExAmple.CoM. 300 IN A 192.0.2.4");
}

#[test]
fn chains_of_aliases() {
    let mut lab = lab();
    assert_eq!(
        lab.text("www.example.com", A),
        "NoError aa; www.example.com. 300 IN CNAME web.example.com.; web.example.com. 300 IN A 192.0.2.4"
    );
    assert_eq!(lab.text("far.example.com", A), "NoError aa; far.example.com. 300 IN CNAME www.example.net.");
    assert_eq!(
        lab.text("lost.example.com", A),
        format!("NXDomain aa; lost.example.com. 300 IN CNAME nothing.example.com.; {SOA}")
    );
    assert_eq!(
        lab.text("loop.example.com", A),
        "NoError aa; loop.example.com. 300 IN CNAME loop2.example.com.; \
         loop2.example.com. 300 IN CNAME loop.example.com."
    );
}

#[test]
fn wildcards_of_several_labels() {
    let mut lab = lab();
    assert_eq!(lab.text("x.y.wild.example.com", A), "NoError aa; x.y.wild.example.com. 300 IN A 192.0.2.5");
    assert_eq!(lab.text("*.wild.example.com", A), "NoError aa; *.wild.example.com. 300 IN A 192.0.2.5");
    assert_eq!(lab.text("x.wild.example.com", NS), format!("NoError aa; {SOA}"));
    assert_eq!(lab.text("here.wild.example.com", A), format!("NoError aa; {SOA}"));
    assert_eq!(lab.text("x.here.wild.example.com", A), format!("NXDomain aa; {SOA}"), "a closer encloser");
    assert_eq!(lab.text("wild.example.com", A), format!("NoError aa; {SOA}"));
}

#[test]
fn delegations() {
    let mut lab = lab();
    let referral = "NoError; auth sub.example.com. 300 IN NS ns.sub.example.com.; \
                    auth sub.example.com. 300 IN NS ns.elsewhere.net.";
    for name in ["sub.example.com", "x.sub.example.com", "ns.sub.example.com"] {
        let answer = lab.ask(&Ask::new(name, A));
        let mut parts: Vec<String> = crate::support::describe(&answer).split("; ").map(str::to_owned).collect();
        let mut expected: Vec<String> = referral.split("; ").map(str::to_owned).collect();
        parts.sort();
        expected.sort();
        assert_eq!(parts, expected, "{name}");
        assert_eq!(answer.additionals.len(), 1, "the glue");
    }
    assert!(lab.text("sub.example.com", DS).starts_with("NoError aa; sub.example.com. 300 IN DS 1 13 2 "));
    assert!(lab.text("into.example.com", A).starts_with("NoError aa; into.example.com. 300 IN CNAME x.sub"));
}

#[test]
fn a_child_zone_answers_for_itself_and_its_parent_for_ds() {
    let mut lab = lab();
    assert_eq!(lab.text("www.child.example.com", A), "NoError aa; www.child.example.com. 300 IN A 192.0.2.9");
    // The parent has no delegation: there the name is missing.
    assert_eq!(lab.text("child.example.com", DS), format!("NXDomain aa; {SOA}"));
}

#[test]
fn any_is_one_set() {
    let mut lab = lab();
    assert_eq!(lab.text("web.example.com", ANY), "NoError aa; web.example.com. 300 IN A 192.0.2.4");
    assert_eq!(lab.ask(&Ask::new("example.com", ANY)).answers.len(), 1);
    let alias = lab.text("www.example.com", ANY);
    assert_eq!(alias, "NoError aa; www.example.com. 300 IN CNAME web.example.com.");
}
