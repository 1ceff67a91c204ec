// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What members' drivers do with their devices: their queues come and go, they give commands, are interrupted, and break rules.

use turnstile_net::control::{Control, Limits};
use turnstile_service_rt::MEMBER_QUEUES;
use turnstile_switch::relay::Device;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use super::{COMMAND, MOVE, SEND, Switch, UPLINK, bits};
use crate::members::Members;
use crate::pairs::Pairs;
use crate::port::{Agreed, Change, Notes, QUEUES};

impl<R> Switch<R> {
    /// Does the commands of a member's driver.
    pub(super) fn command<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        let (Some(port), Some(memory)) = (self.ports.get_mut(member), members.memories().get(member)) else {
            return;
        };
        let (world, number) = (members.world(member), port.model.commands_at());
        let limits = Limits { may_change: false, pairs: port.model.pairs };
        let (mut commands, mut has_changed) = (port.model.commands.take(), false);
        let done = match &mut commands {
            Some(queue) => self.relay.control(member, queue, memory, &limits, |pairs| {
                port.keep_in(&world, |state| state.pairs = pairs);
                has_changed = true;
            }),
            None => Ok((false, false)),
        };
        port.model.commands = commands;
        let owed = core::mem::take(&mut port.model.owed);
        match done {
            Ok((interrupt, more)) => {
                if interrupt || owed {
                    port.raise(&world, number);
                }
                self.due &= if more { u32::MAX } else { !bits(member, COMMAND) };
                if has_changed {
                    // Who waits for buffers of one pair may send to another one now.
                    self.refilled(member);
                }
            }
            Err(_) => self.fail(members, member),
        }
    }

    /// Interrupts drivers that want it, and fails devices of receivers that have broken a rule.
    #[inline(always)] // Once in each turn.
    pub(super) fn tell<M: Members>(&mut self, members: &M)
    where
        R: Rings<M::Memory>,
    {
        let Self { relay, ports, due, .. } = self;
        relay.interrupt(members.memories(), |member, queue| {
            if let Some(port) = ports.get_mut(member)
                && !port.raise(&members.world(member), queue as u16)
            {
                // Of all ports with queues, that of the uplink alone has no function.
                filled(due);
            }
        });
        while let Some(member) = self.relay.broken() {
            self.fail(members, member);
        }
    }

    /// Does what the device of a member has noted.
    #[cold]
    pub(super) fn settle<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        let Some(port) = self.ports.get_mut(member) else { return };
        let notes = core::mem::replace(&mut port.model.notes, Notes::NONE);
        if let Some(Agreed { features, pairs }) = notes.agreed {
            let (settings, known) = (port.model.settings, port.model.pairs);
            let mut control = Control::new(settings.mac);
            control.pairs = pairs;
            let device = Device::new(control, features.into(), settings.longest());
            self.relay.set_device(member, Some(device));
            self.know(member, known);
        }
        for (number, change) in notes.changes.into_iter().enumerate() {
            if change.is_some_and(|change| self.change(members, (member, number), change).is_err()) {
                return self.fail(members, member);
            }
        }
        // As the guest would ring.
        let bells =
            (0..QUEUES as u32).step_by(MEMBER_QUEUES as usize).fold(0, |all, at| all | notes.rung >> at);
        self.ring(bits(member, bells & ((1 << MEMBER_QUEUES) - 1)));
    }

    /// A member's driver knows of so many pairs.
    fn know(&mut self, member: usize, count: u16) {
        let own = bits(member, SEND | COMMAND);
        self.direct = if count > 1 { self.direct & !own } else { self.direct | own };
        self.pairs.iter_mut().skip(member).take(1).for_each(|pairs| *pairs = Pairs::new(count));
    }

    /// Takes over or forgets a queue of packets.
    fn change<M: Members>(
        &mut self,
        members: &M,
        (member, number): (usize, usize),
        change: Change,
    ) -> Result<(), Violation>
    where
        R: Rings<M::Memory>,
    {
        let Some(memory) = members.memories().get(member) else { return Ok(()) };
        let (rings, left) = match change {
            Change::Begin { layout, options, left } => (Some((R::find(memory, &layout)?, options)), left),
            Change::Forget => (None, false),
        };
        self.relay.set_queue((member, number), memory, rings, left)?;
        // Who waits for the buffers of before waits no longer.
        let some = self.pairs.get_mut(member).filter(|pairs| pairs.count() > 1);
        match (number % 2, some) {
            (0, _) => self.refilled(member),
            (_, Some(pairs)) => pairs.stop(number / 2),
            (_, None) => self.stop(member),
        }
        Ok(())
    }

    /// A member's device cannot go on until its driver resets it.
    #[cold]
    #[inline(never)]
    pub(super) fn fail<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        if member == UPLINK {
            return self.lose(members, "its port's rings are broken");
        }
        if let Some(port) = self.ports.get_mut(member) {
            port.fail(&members.world(member));
        }
        self.forget(member);
    }

    /// Forgets all queues of a member.
    pub(super) fn forget(&mut self, member: usize) {
        self.relay.set_device(member, None);
        if let Some(port) = self.ports.get_mut(member) {
            (port.model.notes, port.model.commands) = (Notes::NONE, None);
        }
        self.stop(member);
        if member == UPLINK {
            self.due &= !MOVE;
        } else {
            self.know(member, 1);
            self.due &= !bits(member, COMMAND);
        }
        self.refilled(member);
    }
}

/// The switch has filled buffers of the uplink, or has taken packets of it.
#[cold]
#[inline(never)] // What members need is nearby.
fn filled(due: &mut u32) {
    *due |= MOVE;
}
