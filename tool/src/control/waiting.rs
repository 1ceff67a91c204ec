// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait for the hypervisor to say how much memory its VMs have.

use std::time::{Duration, Instant};

use super::server::Caller;

/// For how long a client waits: it then gets the rest of what it has asked for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those who wait. One question is under way for all of them.
#[derive(Default)]
pub struct Waiting {
    callers: Vec<(Instant, Caller)>,
    /// When the hypervisor was asked, if it has not answered.
    asked: Option<Instant>,
}

/// What is to be done for a client.
pub enum Turn {
    /// The hypervisor is to be asked.
    Ask,
    /// It has been asked already.
    Wait,
    /// It does not answer: the client gets what is known without it.
    Answer(Caller),
}

impl Waiting {
    /// Takes a client.
    pub fn add(&mut self, caller: Caller, now: Instant) -> Turn {
        match self.asked {
            Some(asked) if now.duration_since(asked) >= PATIENCE => Turn::Answer(caller),
            Some(_) => {
                self.callers.push((now, caller));
                Turn::Wait
            }
            None => {
                self.callers.push((now, caller));
                self.asked = Some(now);
                Turn::Ask
            }
        }
    }

    /// The hypervisor has answered: returns all who wait.
    pub fn answered(&mut self) -> impl Iterator<Item = Caller> {
        self.asked = None;
        self.callers.drain(..).map(|(_, caller)| caller)
    }

    /// Returns those who have waited long enough.
    pub fn late(&mut self, now: Instant) -> impl Iterator<Item = Caller> {
        let is_late = move |(since, _): &mut (Instant, Caller)| now.duration_since(*since) >= PATIENCE;
        self.callers.extract_if(.., is_late).map(|(_, caller)| caller)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::outbox::Outbox;
    use super::*;

    #[test]
    fn one_question_is_for_all_and_nobody_waits_for_long() {
        let outbox = Arc::new(Outbox::default());
        let caller = || Caller::with(&outbox);
        let (mut waiting, begin) = (Waiting::default(), Instant::now());
        let after = |milliseconds| begin + Duration::from_millis(milliseconds);
        assert!(matches!(waiting.add(caller(), begin), Turn::Ask));
        assert!(matches!(waiting.add(caller(), after(500)), Turn::Wait));
        assert_eq!(waiting.answered().count(), 2);
        assert!(matches!(waiting.add(caller(), after(600)), Turn::Ask), "it is asked anew");
        assert!(matches!(waiting.add(caller(), after(1000)), Turn::Wait));
        assert_eq!(waiting.late(after(1599)).count(), 0);
        assert_eq!(waiting.late(after(1600)).count(), 1);
        assert!(matches!(waiting.add(caller(), after(1700)), Turn::Answer(_)), "it does not answer");
        assert_eq!(waiting.late(after(2000)).count(), 1);
        assert_eq!(waiting.answered().count(), 0);
        assert!(matches!(waiting.add(caller(), after(9000)), Turn::Ask), "now it does");
    }
}
