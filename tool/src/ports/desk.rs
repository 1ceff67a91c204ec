// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which program is at which port. It waits for nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::outbox::Outbox;
use super::says::Says;
use crate::session::{Heard, PortOf, Session};

/// So many bytes of a program are kept for a guest that does not take them: the rest stays with the program.
const MAX_QUEUED: usize = 64 * 1024;

/// What the desk needs of a session.
pub trait Line {
    /// Somebody comes to a port.
    fn connect(&mut self, of: PortOf);
    /// They go.
    fn disconnect(&mut self, of: PortOf);
    /// They send bytes.
    fn send(&mut self, of: PortOf, bytes: &[u8]);
    /// They have read so many.
    fn read(&mut self, of: PortOf, bytes: usize);
    /// How many bytes of them the guest has not taken.
    fn backlog(&self, of: PortOf) -> usize;
    /// Whether what was just heard of a port is for them.
    fn is_for_them(&self, of: PortOf) -> bool;
}

impl Line for Session {
    fn connect(&mut self, of: PortOf) {
        self.connect_port(of);
    }

    fn disconnect(&mut self, of: PortOf) {
        self.disconnect_port(of);
    }

    fn send(&mut self, of: PortOf, bytes: &[u8]) {
        self.send_to_port(of, bytes);
    }

    fn read(&mut self, of: PortOf, bytes: usize) {
        self.read_port(of, bytes);
    }

    fn backlog(&self, of: PortOf) -> usize {
        self.port_backlog(of)
    }

    fn is_for_them(&self, of: PortOf) -> bool {
        self.is_for_port(of)
    }
}

/// A program at a port.
#[derive(Debug)]
struct Program {
    id: u64,
    outbox: Arc<Outbox>,
    more: Sender<()>,
    /// It has sent something, and no more was asked for.
    holds: bool,
    /// It sends nothing more: it goes when the guest has taken all.
    has_ended: bool,
    /// It has closed the connection.
    is_gone: bool,
}

/// Those at all ports.
#[derive(Debug, Default)]
pub struct Desk {
    all: BTreeMap<PortOf, Program>,
    /// Those whose last bytes are on their way to them.
    leaving: Vec<Arc<Outbox>>,
}

impl Desk {
    /// Says whether somebody is at a port.
    pub fn is_taken(&self, of: PortOf) -> bool {
        self.all.get(&of).is_some_and(|program| !program.is_gone)
    }

    /// Takes what a program does.
    pub fn take(&mut self, says: Says, line: &mut impl Line) {
        match says {
            Says::Come { of, outbox, .. } if self.is_taken(of) => outbox.close(),
            Says::Come { of, id, outbox, more } => {
                // What one that is gone has sent, and the guest has not taken, waits no longer.
                self.send_away(of, line);
                self.all
                    .insert(of, Program { id, outbox, more, holds: false, has_ended: false, is_gone: false });
                line.connect(of);
            }
            Says::Sends { of, id, bytes } => {
                if let Some(program) = self.program(of, id) {
                    program.holds = true;
                    line.send(of, &bytes);
                }
            }
            Says::Reads { of, id, bytes } => {
                if self.program(of, id).is_some() {
                    line.read(of, bytes);
                }
            }
            Says::Ends { of, id } => {
                if let Some(program) = self.program(of, id) {
                    program.has_ended = true;
                }
            }
            Says::IsGone { of, id } => {
                if let Some(program) = self.program(of, id) {
                    program.is_gone = true;
                }
            }
        }
        self.go_on(line);
    }

    fn program(&mut self, of: PortOf, id: u64) -> Option<&mut Program> {
        self.all.get_mut(&of).filter(|program| program.id == id)
    }

    /// Takes what was heard of the machine, and which ports a VM that has stopped has closed.
    pub fn hear(&mut self, heard: &Heard, closed: &[PortOf], line: &mut impl Line) {
        if let Heard::Port { vm, port, bytes } = heard
            && let Some(program) = self.all.get(&(*vm, *port)).filter(|_| line.is_for_them((*vm, *port)))
        {
            program.outbox.push(bytes);
        }
        closed.iter().for_each(|of| self.send_away(*of, line));
        self.go_on(line);
    }

    /// Asks for more where there is room, and lets those go of whom the guest has taken all.
    fn go_on(&mut self, line: &mut impl Line) {
        let mut done = Vec::new();
        for (of, program) in &mut self.all {
            let backlog = line.backlog(*of);
            if program.holds && backlog < MAX_QUEUED {
                program.holds = program.more.send(()).is_err();
            }
            if program.has_ended && backlog == 0 {
                done.push(*of);
            }
        }
        done.into_iter().for_each(|of| self.send_away(of, line));
    }

    /// Ends who is at a port, if somebody is: they get what is on its way to them.
    fn send_away(&mut self, of: PortOf, line: &mut impl Line) {
        if let Some(program) = self.all.remove(&of) {
            line.disconnect(of);
            program.outbox.close();
            self.leaving.retain(|outbox| Arc::strong_count(outbox) > 1);
            self.leaving.push(program.outbox);
        }
    }

    /// The machine has ended: waits for a moment until all have the last of it.
    pub fn finish(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let last = std::mem::take(&mut self.all).into_values().map(|program| program.outbox);
        for outbox in last.chain(self.leaving.drain(..)) {
            outbox.close();
            outbox.finish(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// What was said of ports: each call as a line.
    #[derive(Default)]
    struct Said(Vec<String>, usize);

    impl Line for Said {
        fn connect(&mut self, of: PortOf) {
            self.0.push(format!("connect {}", of.1));
        }

        fn disconnect(&mut self, of: PortOf) {
            self.0.push(format!("disconnect {}", of.1));
        }

        fn send(&mut self, of: PortOf, bytes: &[u8]) {
            self.0.push(format!("send {} {}", of.1, bytes.len()));
        }

        fn read(&mut self, of: PortOf, bytes: usize) {
            self.0.push(format!("read {} {bytes}", of.1));
        }

        fn backlog(&self, _: PortOf) -> usize {
            self.1
        }

        fn is_for_them(&self, of: PortOf) -> bool {
            of.1 != 9
        }
    }

    const OF: PortOf = (0, 1);

    fn come(desk: &mut Desk, line: &mut Said, id: u64) -> (Arc<Outbox>, Receiver<()>) {
        let (more, wanted) = channel();
        let outbox = Arc::new(Outbox::default());
        desk.take(Says::Come { of: OF, id, outbox: Arc::clone(&outbox), more }, line);
        (outbox, wanted)
    }

    fn is_closed(outbox: &Outbox) -> bool {
        format!("{outbox:?}").contains("is_closed: true")
    }

    #[test]
    fn one_is_at_a_port_and_others_are_turned_away() {
        let (mut desk, mut line) = (Desk::default(), Said::default());
        let (first, wanted) = come(&mut desk, &mut line, 1);
        let (second, _) = come(&mut desk, &mut line, 2);
        assert!(!is_closed(&first) && is_closed(&second) && desk.is_taken(OF));
        desk.take(Says::Sends { of: OF, id: 2, bytes: vec![1] }, &mut line);
        desk.take(Says::Ends { of: OF, id: 2 }, &mut line);
        desk.take(Says::Sends { of: OF, id: 1, bytes: vec![1, 2] }, &mut line);
        assert!(wanted.try_recv().is_ok(), "there is room for more");
        line.1 = MAX_QUEUED;
        desk.take(Says::Sends { of: OF, id: 1, bytes: vec![1] }, &mut line);
        assert!(wanted.try_recv().is_err());
        desk.take(Says::Ends { of: OF, id: 1 }, &mut line);
        assert!(!is_closed(&first), "the guest has not taken all");
        line.1 = 0;
        desk.hear(&Heard::PortRoom { vm: 0, port: 1, bytes: 9 }, &[], &mut line);
        assert!(is_closed(&first) && !desk.is_taken(OF));
        assert_eq!(line.0, ["connect 1", "send 1 2", "send 1 1", "disconnect 1"]);
    }

    #[test]
    fn who_is_gone_gives_way_though_the_guest_has_not_taken_all() {
        let (mut desk, mut line) = (Desk::default(), Said(Vec::new(), 5));
        let (first, _wanted) = come(&mut desk, &mut line, 1);
        desk.take(Says::Ends { of: OF, id: 1 }, &mut line);
        assert!(desk.is_taken(OF), "it waits for the guest");
        desk.take(Says::IsGone { of: OF, id: 1 }, &mut line);
        assert!(!desk.is_taken(OF) && !is_closed(&first));
        let (second, _more) = come(&mut desk, &mut line, 2);
        assert!(is_closed(&first) && !is_closed(&second));
        assert_eq!(line.0, ["connect 1", "disconnect 1", "connect 1"]);
    }

    #[test]
    fn bytes_of_the_guest_reach_who_is_there_and_the_end_of_the_vm_is_theirs() {
        let (mut desk, mut line) = (Desk::default(), Said::default());
        let (outbox, _wanted) = come(&mut desk, &mut line, 1);
        for port in [1, 2, 9] {
            desk.hear(&Heard::Port { vm: 0, port, bytes: vec![port; 3] }, &[], &mut line);
        }
        desk.take(Says::Reads { of: OF, id: 1, bytes: 3 }, &mut line);
        desk.hear(&Heard::Done { crashed: 0 }, &[OF], &mut line);
        assert!(is_closed(&outbox) && format!("{outbox:?}").contains("bytes: [1, 1, 1]"));
        assert_eq!(line.0, ["connect 1", "read 1 3", "disconnect 1"]);
        // Nobody writes them: it does not wait for ever.
        desk.finish(Duration::from_millis(1));
    }
}
