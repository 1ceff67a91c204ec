// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch's network card: what becomes of the uplink's port when the card comes, interrupts, and is lost.

use turnstile_net::control::Control;
use turnstile_net::settings::Accepts;
use turnstile_nic::any::Any;
use turnstile_nic::card::Failure;
use turnstile_service_rt::{Answer, LATER, UNDRIVEN};
use turnstile_switch::port::Rules;
use turnstile_switch::relay::Device;
use turnstile_virtio::rings::Rings;

use super::{MOVE, Switch, UPLINK, UPLINK_SEND};
use crate::members::Members;
use crate::uplink::{BUFFERS, LONGEST, Turn, Uplink};

/// How long until somebody looks again at a card that interrupts for nothing, in nanoseconds.
const SOON: u64 = 1_000_000;

impl<R> Switch<R> {
    /// The hypervisor has given the switch a network card, which reaches no memory yet: resets it.
    #[inline(never)] // Once.
    pub fn reset<M: Members>(&mut self, members: &M) -> Answer
    where
        R: Rings<M::Memory>,
    {
        match Uplink::<Any<BUFFERS>>::reset(members.bus()) {
            Ok(()) => self.answer(members),
            Err(failure) => {
                self.lose(members, failure.text());
                Answer { value: UNDRIVEN, ..self.answer(members) }
            }
        }
    }

    /// The card reaches memory: begins with it.
    #[inline(never)] // Once.
    pub fn device<M: Members>(&mut self, members: &M) -> Answer
    where
        R: Rings<M::Memory>,
    {
        if let Err(failure) = self.plug(members) {
            self.lose(members, failure.text());
        }
        let value = if self.is_plugged { 0 } else { UNDRIVEN };
        Answer { value, ..self.answer(members) }
    }

    /// Connects the uplink's port.
    fn plug<M: Members>(&mut self, members: &M) -> Result<(), Failure>
    where
        R: Rings<M::Memory>,
    {
        let Some(memory) = members.memories().get(UPLINK) else { return Ok(()) };
        let rings = self.uplink.begin(members.bus(), memory, members.shared())?;
        self.is_plugged = true;
        // Whatever is on the network behind it may be there, and no more is agreed on than whole packets.
        self.relay.switch().attach(UPLINK, Rules { impatient: true, ..Rules::default() });
        let device = Device::new(Control::new([0; 6]), Accepts::default(), LONGEST);
        self.relay.set_device(UPLINK, Some(device));
        for (number, (layout, options)) in rings.into_iter().enumerate() {
            let rings = R::find(memory, &layout)?;
            self.relay.set_queue((UPLINK, number), memory, Some((rings, options)), false)?;
        }
        // What came before the card was asked to interrupt, it need not tell.
        self.due |= MOVE;
        if let Some(until) = self.uplink.settle(members.bus())? {
            self.wait_for_card(until);
        }
        Ok(())
    }

    /// Handles an interrupt of the card.
    #[inline(never)] // Notifications are more frequent.
    pub fn interrupt<M: Members>(&mut self, members: &M, now: u64) -> Answer
    where
        R: Rings<M::Memory>,
    {
        self.interrupted(members);
        self.work(members, now);
        if self.is_plugged {
            self.count(members, now);
        }
        let value = match self.is_plugged {
            false => UNDRIVEN,
            true if self.fruitless.is_too_many() => LATER,
            true => 0,
        };
        Answer { value, ..self.answer(members) }
    }

    /// Counts an interrupt. A pin that stays high would take the CPU: its card is looked at instead, and interrupts once each time.
    fn count<M: Members>(&mut self, members: &M, now: u64) {
        let has_moved = core::mem::take(&mut self.has_moved);
        if self.fruitless.count(has_moved) {
            members.log("its card interrupts for nothing, and is looked at instead\n");
        }
        if self.fruitless.is_too_many() {
            self.wait_for_card(now.saturating_add(SOON));
        }
    }

    /// The card has interrupted.
    fn interrupted<M: Members>(&mut self, members: &M)
    where
        R: Rings<M::Memory>,
    {
        if !self.is_plugged {
            return;
        }
        match self.uplink.interrupted(members.bus()) {
            Ok(()) => self.due |= MOVE,
            Err(failure) => self.lose(members, failure.text()),
        }
    }

    /// Moves on the uplink's buffers.
    pub(super) fn move_on<M: Members>(&mut self, members: &M)
    where
        R: Rings<M::Memory>,
    {
        self.due &= !MOVE;
        let Some(memory) = members.memories().get(UPLINK).filter(|_| self.is_plugged) else { return };
        match self.uplink.turn(members.bus(), memory) {
            Ok(Turn { sends, refilled, moved, again, until }) => {
                self.has_moved |= moved;
                self.due |= if sends { UPLINK_SEND } else { 0 };
                self.due |= if again { MOVE } else { 0 };
                if refilled {
                    self.refilled(UPLINK);
                }
                if let Some(until) = until {
                    self.wait_for_card(until);
                }
            }
            Err(failure) => self.lose(members, failure.text()),
        }
    }

    /// The card cannot be used: the switch goes on without it.
    #[cold]
    #[inline(never)]
    pub(super) fn lose<M: Members>(&mut self, members: &M, why: &str)
    where
        R: Rings<M::Memory>,
    {
        members.log("no uplink: ");
        members.log(why);
        members.log("\n");
        self.unplug(members);
    }

    /// Disconnects the uplink's port.
    fn unplug<M: Members>(&mut self, members: &M)
    where
        R: Rings<M::Memory>,
    {
        self.uplink.end(members.bus());
        self.is_plugged = false;
        self.relay.switch().detach(UPLINK);
        self.forget(UPLINK);
    }
}
