//! Deeds: what clients do of their own, and what happens to them.

use std::sync::Arc;

use super::client::{Client, ClientState};
use super::ms;
use super::world::{Asked, Message, Request, SESSION, World};
use crate::groups::group::{Event, Owner, Place};

impl World {
    /// What a client does of its own.
    pub(super) fn step_client(&mut self, number: usize) {
        if !self.clients[number].runs() {
            return;
        }
        let now = self.now;
        let places: Vec<Place> = self.clients[number].held.keys().copied().collect();
        for place in places {
            self.step_partition(number, place);
        }
        let client = &mut self.clients[number];
        if let Some(keep) = client.wants_to_leave.take()
            && client.state == ClientState::Member
        {
            client.held.values_mut().for_each(|held| held.draining = true);
            client.state = ClientState::Leaving;
            if keep.is_some() {
                client.stop();
            }
            self.send(Message::To(number, Request::Leave { keep }));
            return;
        }
        if client.asked_at.is_some_and(|asked| now < asked + SESSION / 3) {
            return;
        }
        client.asked_at = Some(now);
        let request = match client.state {
            ClientState::Joining => Request::Join,
            _ if client.state == ClientState::Leaving && client.held.is_empty() => {
                client.stop();
                // It may not know of a grant that it never saw: its connection tells.
                return self.send_surely(number, Request::Closed);
            }
            _ => Request::Heartbeat {
                sent: now,
                seen: client.seen_version,
                holds: client.holds(),
                processing: client.oldest(now),
            },
        };
        self.send(Message::To(number, request));
    }

    pub(super) fn step_partition(&mut self, number: usize, place: Place) {
        let now = self.now;
        let may = self.clients[number].may_hand_over(place, now, SESSION);
        let slow = self.wild && self.one_in(150);
        let takes = if slow { ms(self.below(2_500)) } else { ms(self.below(60)) };
        let commits = self.one_in(10);
        let Some(held) = self.clients[number].held.get_mut(&place) else { return };
        if held.busy.is_some_and(|(_, until)| now >= until) {
            held.busy = None;
            held.cursor += 1;
        }
        if held.busy.is_none() && may {
            held.busy = Some((now, now + takes));
            self.counts.handed_over += 1;
        }
        let (epoch, cursor) = (held.epoch, held.cursor);
        if held.draining && held.busy.is_none() {
            if held.release_sent.is_none_or(|sent| now >= sent + ms(200)) {
                held.release_sent = Some(now);
                self.send(Message::To(number, Request::Release { place, epoch, cursor }));
            }
        } else if commits && self.clients[number].state != ClientState::Stopped {
            self.send(Message::To(number, Request::Commit { place, epoch, cursor }));
        }
    }

    pub(super) fn send_surely(&mut self, number: usize, request: Request) {
        self.network.push((self.now + ms(30), Message::To(number, request)));
    }

    pub(super) fn start_client(&mut self) {
        let members = ["m0", "m1", "m2", "m3"];
        let member = members[usize::try_from(self.below(4)).unwrap()];
        let topics = if self.one_in(3) { vec!["a"] } else { vec!["a", "b"] };
        self.incarnations += 1;
        let owner = Owner { member: Arc::from(member), incarnation: self.incarnations };
        let forgetful = self.one_in(4);
        self.clients.push(Client::new(owner, topics, forgetful));
    }

    pub(super) fn disturb(&mut self) {
        let running: Vec<usize> =
            (0..self.clients.len()).filter(|client| self.clients[*client].runs()).collect();
        if running.len() < 2 || running.len() < 6 && self.one_in(60) {
            self.start_client();
        }
        if !running.is_empty() && self.one_in(100) {
            let at = self.below(running.len() as u64);
            let client = running[usize::try_from(at).unwrap()];
            match self.below(3) {
                0 => {
                    self.clients[client].state = ClientState::Dead;
                    self.send_surely(client, Request::Closed);
                }
                1 => self.clients[client].wants_to_leave = Some(None),
                _ => {
                    let keep = ms(self.below(2_000));
                    self.clients[client].wants_to_leave = Some(Some(keep));
                }
            }
        }
        if self.one_in(250) {
            self.reset();
        }
        if self.one_in(500) && self.topics[0].partitions < 8 {
            self.topics[0].partitions += 1;
            let topics = self.topics.clone();
            self.tell(Event::TopicsChanged { topics });
        }
        if self.chaos.restarts && self.one_in(200) {
            match self.group {
                Some(_) => self.crash_server(),
                None => self.start_server(),
            }
        }
        if self.group.is_none() && self.one_in(20) {
            self.start_server();
        }
    }

    pub(super) fn reset(&mut self) {
        let (topic, partition) = (self.topics[0].clone(), self.below(5));
        let partition = u32::try_from(partition).unwrap();
        let place = Place { topic_id: topic.id, partition };
        let to = self.below(50);
        self.counts.resets += 1;
        self.next_request += 1;
        self.requests.insert(self.next_request, Asked::Other);
        self.tell(Event::Reset { request: self.next_request, to: vec![(topic.name, place, to)] });
    }
}
