//! Assignor: which member gets which partition of a topic. Pure.
//!
//! Sticky round robin: what is held stays where it is as long as its holder has no more than its
//! share; only what has no holder, or is above a share, is dealt. Shares differ by one at most. So
//! no more moves than must.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Deals the partitions of one topic to those who read it. `holders` says for each partition who
/// has it, if anybody; `readers` are sorted and apart; `loads` counts what each has of all topics
/// dealt so far, so that what does not divide evenly does not always go to the same.
#[must_use]
pub fn assign(
    holders: &[Option<Arc<str>>],
    readers: &[Arc<str>],
    loads: &mut BTreeMap<Arc<str>, usize>,
) -> Vec<Option<Arc<str>>> {
    if readers.is_empty() {
        return vec![None; holders.len()];
    }
    let mut room = shares(holders, readers, loads);
    let mut dealt: Vec<Option<Arc<str>>> = vec![None; holders.len()];
    for (place, holder) in holders.iter().enumerate() {
        let Some(left) = holder.as_ref().and_then(|holder| room.get_mut(holder)) else { continue };
        if *left > 0 {
            *left -= 1;
            dealt[place].clone_from(holder);
        }
    }
    let mut turn = readers.iter().cycle();
    for place in dealt.iter_mut().filter(|place| place.is_none()) {
        let next = turn.by_ref().take(readers.len()).find(|reader| room[*reader] > 0);
        let next = next.expect("shares add up to the number of partitions");
        *room.get_mut(next).expect("a reader has a share") -= 1;
        *place = Some(Arc::clone(next));
    }
    for reader in dealt.iter().flatten() {
        *loads.entry(Arc::clone(reader)).or_default() += 1;
    }
    dealt
}

/// How many partitions each reader gets: the larger shares go to those who hold more than the
/// smaller one already, then to those who have the least of other topics.
fn shares(
    holders: &[Option<Arc<str>>],
    readers: &[Arc<str>],
    loads: &BTreeMap<Arc<str>, usize>,
) -> BTreeMap<Arc<str>, usize> {
    let (least, larger) = (holders.len() / readers.len(), holders.len() % readers.len());
    let mut held: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for holder in holders.iter().flatten() {
        *held.entry(holder).or_default() += 1;
    }
    let mut order: Vec<&Arc<str>> = readers.iter().collect();
    order.sort_by_key(|reader| {
        let holds_more = held.get(reader).is_some_and(|held| *held > least);
        (!holds_more, loads.get(*reader).copied().unwrap_or(0), *reader)
    });
    let share = |(rank, reader): (usize, &Arc<str>)| {
        (Arc::clone(reader), if rank < larger { least + 1 } else { least })
    };
    order.into_iter().enumerate().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|number| Arc::from(format!("m{number}"))).collect()
    }

    fn counts(dealt: &[Option<Arc<str>>], readers: &[Arc<str>]) -> Vec<usize> {
        let count = |reader: &Arc<str>| dealt.iter().flatten().filter(|d| *d == reader).count();
        readers.iter().map(count).collect()
    }

    #[test]
    fn topics_of_one_partition_do_not_all_go_to_the_first() {
        let (readers, mut loads) = (names(3), BTreeMap::new());
        for _ in 0..6 {
            assert_eq!(assign(&[None], &readers, &mut loads).len(), 1);
        }
        assert!(loads.values().all(|load| *load == 2), "{loads:?}");
    }

    #[test]
    fn without_readers_nobody_gets_anything() {
        let held = [Some(Arc::from("gone")), None];
        assert_eq!(assign(&held, &[], &mut BTreeMap::new()), vec![None, None]);
        assert!(assign(&[], &names(2), &mut BTreeMap::new()).is_empty());
    }

    proptest! {
        #[test]
        fn balanced_within_one_and_nothing_moves_without_need(
            partitions in 0_usize..40,
            readers in 1_usize..9,
            held in proptest::collection::vec(proptest::option::of(0_usize..12), 40),
        ) {
            // Some who hold are no readers any more.
            let all = names(12);
            let holders: Vec<_> =
                held[..partitions].iter().map(|h| h.map(|h| Arc::clone(&all[h]))).collect();
            let readers = &all[..readers];
            let dealt = assign(&holders, readers, &mut BTreeMap::new());
            prop_assert!(dealt.iter().all(Option::is_some));
            let counts_after = counts(&dealt, readers);
            let (least, most) = (counts_after.iter().min().unwrap(), counts_after.iter().max().unwrap());
            prop_assert!(most - least <= 1);

            // The fewest that must leave a reader: what is above the shares, the larger shares
            // given to whom they help.
            let share = partitions / readers.len();
            let mut larger = partitions % readers.len();
            let mut must_move = 0;
            for count in counts(&holders, readers) {
                let above = count.saturating_sub(share);
                let kept = usize::from(above > 0 && larger > 0);
                larger -= kept;
                must_move += above - kept;
            }
            let is_reader = |h: &Option<Arc<str>>| h.as_ref().is_some_and(|h| readers.contains(h));
            let moved = holders.iter().zip(&dealt).filter(|(h, d)| is_reader(h) && h != d).count();
            prop_assert_eq!(moved, must_move);
            // Dealing again what was dealt changes nothing.
            prop_assert_eq!(&assign(&dealt, readers, &mut BTreeMap::new()), &dealt);
        }
    }
}
