//! Tests of the spread of flows over regions by their dials.

use proptest::{collection::vec, prelude::*};
use sallyport_balance::regions::{Dial, Group, Rolls, choose};

fn group(percent: u8, is_usable: bool) -> Group {
    Group { dial: Dial::new(percent).unwrap(), is_usable }
}

fn groups(dials: &[u8]) -> Vec<Group> {
    dials.iter().map(|percent| group(*percent, true)).collect()
}

/// How many of `flows` flows each group gets.
fn spread(groups: &[Group], flows: u32) -> Vec<u32> {
    let (mut rolls, mut got) = (Rolls::from(7), vec![0; groups.len()]);
    for _ in 0..flows {
        if let Some(place) = choose(groups, rolls.roll()) {
            got[place] += 1;
        }
    }
    got
}

fn near(found: u32, wanted: u32) -> bool {
    found.abs_diff(wanted) <= 2
}

#[test]
fn a_group_keeps_what_its_dial_says_and_the_last_one_keeps_the_rest() {
    for (dials, wanted) in [
        (&[100, 100][..], &[1_000, 0][..]),
        (&[20, 100], &[200, 800]),
        (&[50, 50], &[500, 500]),
        (&[20, 50, 100], &[200, 400, 400]),
        (&[10, 10, 10], &[100, 90, 810]),
        (&[0, 100], &[0, 1_000]),
        (&[100, 0], &[1_000, 0]),
        (&[5], &[1_000]),
    ] {
        let got = spread(&groups(dials), 1_000);
        assert!(got.iter().zip(wanted).all(|(got, wanted)| near(*got, *wanted)), "{dials:?}: {got:?}");
    }
}

#[test]
fn twenty_flows_are_as_even_as_twenty_flows_can_be() {
    for start in 0..1_000_u64 {
        let (mut rolls, dialed) = (Rolls::from(start.wrapping_mul(0x1234_5678_9abc_def1)), groups(&[20, 100]));
        let kept = (0..20).filter(|_| choose(&dialed, rolls.roll()) == Some(0)).count();
        assert!((2..=6).contains(&kept), "{kept}");
    }
}

#[test]
fn a_group_that_is_lost_leaves_its_share_to_the_others() {
    let lost = |dials: &[u8], lost: &[usize]| {
        let mut groups = groups(dials);
        lost.iter().for_each(|place| groups[*place].is_usable = false);
        groups
    };
    assert_eq!(spread(&lost(&[100, 100, 100], &[0]), 100), [0, 100, 0]);
    let got = spread(&lost(&[50, 50, 100], &[1]), 100);
    assert!(near(got[0], 50) && got[1] == 0 && near(got[2], 50), "{got:?}");
    assert_eq!(spread(&lost(&[20, 100], &[1]), 100), [100, 0], "rather served than refused");
    assert_eq!(spread(&lost(&[0, 100], &[1]), 100), [100, 0], "also by a group that is dialed down to nothing");
    assert_eq!(choose(&lost(&[0, 100, 0], &[1]), 0), Some(0), "by the nearest of them");
}

#[test]
fn no_origin_is_picked_when_all_are_gone() {
    assert_eq!(choose(&groups(&[0, 0]), 0), Some(0), "all at 0: rather served than refused");
    assert_eq!(choose(&[group(100, false), group(0, false)], 0), None);
    assert_eq!(choose(&[], 0), None);
}

#[test]
fn a_dial_is_a_percentage() {
    assert_eq!("20".parse::<Dial>().unwrap().percent(), 20);
    assert_eq!(Dial::default(), Dial::FULL);
    for bad in ["", "101", "-1", "20%", "0.5", "300"] {
        assert!(bad.parse::<Dial>().unwrap_err().to_string().contains("from 0 to 100"), "{bad}");
    }
    assert!(Dial::new(101).is_err());
}

fn any_group() -> impl Strategy<Value = Group> {
    let percent = prop_oneof![Just(0_u8), Just(100), 1_u8..100];
    (percent, any::<bool>()).prop_map(|(percent, is_usable)| group(percent, is_usable))
}

proptest! {
    #[test]
    fn a_flow_is_served_by_a_group_that_can_whenever_there_is_one(
        groups in vec(any_group(), 0..8), roll in any::<u64>()
    ) {
        let can = groups.iter().any(|group| group.is_usable);
        match choose(&groups, roll) {
            Some(place) => {
                prop_assert!(groups[place].is_usable);
                let others_can = groups.iter().any(|group| group.is_usable && group.dial != Dial::CLOSED);
                prop_assert!(groups[place].dial != Dial::CLOSED || !others_can, "a closed one is the last resort");
            }
            None => prop_assert!(!can),
        }
    }

    #[test]
    fn turning_a_dial_up_moves_no_flow_away_from_its_group(
        mut groups in vec(any_group(), 1..6),
        place in any::<prop::sample::Index>(),
        more in 1_u8..=100,
        roll in any::<u64>(),
    ) {
        let place = place.index(groups.len());
        // A dial that leaves zero may change the last resort; that is no share.
        prop_assume!(groups[place].dial != Dial::CLOSED);
        let before = choose(&groups, roll);
        groups[place].dial = Dial::new(groups[place].dial.percent().max(more)).unwrap();
        let after = choose(&groups, roll);
        if before == Some(place) {
            prop_assert_eq!(after, before);
        }
        if let (Some(before), Some(after)) = (before, after) {
            prop_assert!(after <= before, "it draws flows nearer: {before} {after}");
            prop_assert!(before > place || after == before, "nothing changes for those before it: {before} {after}");
        }
    }

    #[test]
    fn what_is_kept_is_the_dials_part_of_what_comes(dials in vec(1_u8..=100, 1..5)) {
        let got = spread(&groups(&dials), 10_000);
        let mut left = 10_000.0;
        for (place, percent) in dials.iter().enumerate() {
            let is_last = place + 1 == dials.len();
            let kept = if is_last { left } else { left * f64::from(*percent) / 100.0 };
            prop_assert!((f64::from(got[place]) - kept).abs() < 40.0, "{dials:?} {got:?} {place}");
            left -= kept;
        }
    }
}
