//! Checks: what must hold in the world, always and in the end.

use std::collections::BTreeMap;

use super::client::ClientState;
use super::world::{SESSION, World};
use crate::groups::group::Place;

impl World {
    /// Nobody hands records of a partition over while another does; and a record that is still with
    /// its handler when another has the partition was taken by force.
    pub(super) fn check_hands(&self) {
        let mut hands: BTreeMap<Place, (usize, u64)> = BTreeMap::new();
        for (number, client) in self.clients.iter().enumerate() {
            for (place, held) in &client.held {
                if !client.may_hand_over(*place, self.now, SESSION) {
                    continue;
                }
                if let Some(other) = hands.insert(*place, (number, held.epoch)) {
                    panic!("{place:?} is in two hands: {other:?}, {number} {held:?}");
                }
            }
        }
        for (number, client) in self.clients.iter().enumerate().filter(|(_, c)| c.runs()) {
            for (place, held) in client.held.iter().filter(|(_, held)| held.busy.is_some()) {
                if hands.get(place).is_some_and(|(other, _)| *other != number) {
                    let told = self.forced.contains(&(*place, held.epoch));
                    assert!(told, "{place:?} epoch {} was taken, and it is not told", held.epoch);
                }
            }
        }
    }

    /// What is committed goes back only by a reset.
    pub(super) fn check_positions(&mut self) {
        for (place, line) in self.store.lines() {
            let Some(position) = &line.position else { continue };
            let before = self.positions.insert(*place, (position.offset, line.resets));
            if let Some((offset, resets)) = before {
                let went_back = position.offset < offset && line.resets == resets;
                assert!(!went_back, "{place:?} went back from {offset} to {position:?}");
            }
        }
    }

    /// Without disturbance, all comes to rest: every partition with one owner, balanced.
    pub(super) fn settle(&mut self) {
        self.wild = false;
        if self.group.is_none() {
            self.start_server();
        }
        self.start_client();
        (0..1_200).for_each(|_| self.step());
        let before = self.hands();
        (0..300).for_each(|_| self.step());
        assert_eq!(before, self.hands(), "members that keep their partitions stop");
        let group = self.group.as_ref().unwrap();
        assert!(!group.is_unused());
        for line in &self.topics {
            let readers: Vec<usize> = (0..self.clients.len())
                .filter(|c| self.clients[*c].state == ClientState::Member)
                .filter(|c| self.clients[*c].topics.contains(&&*line.name))
                .collect();
            if readers.is_empty() {
                continue;
            }
            let count = |client: &usize| {
                before.iter().filter(|(p, (c, _))| p.topic_id == line.id && c == client).count()
            };
            let counts: Vec<usize> = readers.iter().map(count).collect();
            let all: usize = counts.iter().sum();
            assert_eq!(all, line.partitions as usize, "{}: {counts:?} {before:?}", line.name);
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    /// Who would hand over what.
    pub(super) fn hands(&self) -> BTreeMap<Place, (usize, u64)> {
        let mut hands = BTreeMap::new();
        for (number, client) in self.clients.iter().enumerate() {
            for (place, held) in &client.held {
                if client.may_hand_over(*place, self.now, SESSION) {
                    hands.insert(*place, (number, held.epoch));
                }
            }
        }
        hands
    }
}
