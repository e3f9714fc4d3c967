//! Calls, and the groups they share.

use std::vec::IntoIter;

use plimsoll_core::store::{
    Claimed, Commit, Exchange, Exchanged, Guard, Receipt, Renew, Renewal, Write,
};
use plimsoll_core::task::Holder;
use plimsoll_core::{Limits, Result, Store};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// About how many bytes a group may carry.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

type Reply = oneshot::Sender<Result<Exchanged>>;

/// A method of the port that can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Commit,
    Claim,
    Renew,
    Exchange,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Exchange => "exchange",
        }
    }
}

/// The room that a call takes until it is answered.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) _call: OwnedSemaphorePermit,
    pub(super) _bytes: OwnedSemaphorePermit,
}

/// What a caller asks. Every verb is an exchange with parts left out.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) exchange: Exchange,
    /// About how many it carries.
    pub(super) bytes: usize,
    pub(super) room: Option<Room>,
    reply: Reply,
}

impl Call {
    pub(super) fn new(verb: Verb, exchange: Exchange, reply: Reply) -> Box<Self> {
        Box::new(Self {
            verb,
            bytes: bytes(&exchange),
            exchange,
            room: None,
            reply,
        })
    }

    pub(super) fn selects(&self) -> bool {
        self.exchange.claim.is_some() || self.exchange.renew.is_some()
    }

    pub(super) fn only_claims(&self) -> bool {
        let Exchange {
            commits,
            renew,
            claim,
        } = &self.exchange;
        claim.is_some() && renew.is_none() && commits.is_empty()
    }
}

fn holders(renew: Option<&Renew>) -> usize {
    renew.map_or(0, |renew| renew.holders.len())
}

fn bytes(exchange: &Exchange) -> usize {
    let commit = |commit: &Commit| {
        commit.size()
            + size_of::<Commit>()
            + commit.guards.len() * size_of::<Guard>()
            + commit.writes.len() * size_of::<Write>()
    };
    let commits: usize = exchange.commits.iter().map(commit).sum();
    commits + holders(exchange.renew.as_ref()) * size_of::<Holder>()
}

/// Calls that are sent as one.
#[derive(Debug)]
pub(super) struct Group {
    /// The one verb of all its calls, or `Exchange`.
    verb: Verb,
    exchange: Exchange,
    bytes: usize,
    members: Vec<Member>,
}

/// A call in a group: what of the answer is its own.
#[derive(Debug)]
struct Member {
    commits: usize,
    /// How many leases it renews, if it renews.
    leases: Option<usize>,
    claims: bool,
    reply: Reply,
    _room: Option<Room>,
}

impl Group {
    pub(super) fn of(call: Call) -> Self {
        let mut group = Self {
            verb: call.verb,
            exchange: Exchange::default(),
            bytes: 0,
            members: Vec::new(),
        };
        group.add(call);
        group
    }

    /// Whether a call fits. One that exceeds a limit fits nowhere, so that nobody is refused for it.
    pub(super) fn has_room_for(&self, call: &Call, limits: &Limits) -> bool {
        let (ours, theirs) = (&self.exchange, &call.exchange);
        let renewals_fit = match (&ours.renew, &theirs.renew) {
            (Some(ours), Some(theirs)) => {
                ours.lease == theirs.lease
                    && ours.holders.len() + theirs.holders.len() <= limits.leases_max
            }
            (None, _) | (_, None) => true,
        };
        renewals_fit
            && (ours.claim.is_none() || theirs.claim.is_none())
            && ours.commits.len() + theirs.commits.len() <= limits.commits_max
            && self.bytes + call.bytes <= GROUP_BYTES_MAX.min(limits.call_bytes_max)
    }

    /// Adds a call, for which there must be room.
    pub(super) fn add(&mut self, call: Call) {
        let Exchange {
            commits,
            renew,
            claim,
        } = call.exchange;
        self.members.push(Member {
            commits: commits.len(),
            leases: renew.as_ref().map(|renew| renew.holders.len()),
            claims: claim.is_some(),
            reply: call.reply,
            _room: call.room,
        });
        if self.verb != call.verb {
            self.verb = Verb::Exchange;
        }
        self.bytes += call.bytes;
        self.exchange.commits.extend(commits);
        match (&mut self.exchange.renew, renew) {
            (Some(ours), Some(theirs)) => ours.holders.extend(theirs.holders),
            (ours, theirs @ Some(_)) => *ours = theirs,
            (_, None) => {}
        }
        self.exchange.claim = self.exchange.claim.take().or(claim);
    }

    /// Sends it, and answers each member its part. How many there were.
    pub(super) async fn send(self, store: &dyn Store) -> usize {
        let callers = self.members.len();
        let answer = send(store, self.verb, self.exchange, callers).await;
        let mut parts = answer.map(Parts::from);
        for member in self.members {
            let part = match &mut parts {
                Ok(parts) => Ok(parts.of(&member)),
                Err(error) => Err(error.clone()),
            };
            // A caller that went away does not want to know.
            member.reply.send(part).ok();
        }
        callers
    }
}

/// What is left of an answer to be given to members.
struct Parts {
    commits: IntoIter<Result<Receipt>>,
    renewals: Option<Result<IntoIter<Renewal>>>,
    claimed: Option<Result<Claimed>>,
}

impl From<Exchanged> for Parts {
    fn from(exchanged: Exchanged) -> Self {
        Self {
            commits: exchanged.commits.into_iter(),
            renewals: (exchanged.renewals).map(|renewals| renewals.map(Vec::into_iter)),
            claimed: exchanged.claimed,
        }
    }
}

impl Parts {
    fn of(&mut self, member: &Member) -> Exchanged {
        let renewals = member.leases.zip(self.renewals.as_mut());
        Exchanged {
            commits: self.commits.by_ref().take(member.commits).collect(),
            renewals: renewals.map(|(count, renewals)| match renewals {
                Ok(renewals) => Ok(renewals.take(count).collect()),
                Err(error) => Err(error.clone()),
            }),
            claimed: member.claims.then(|| self.claimed.take()).flatten(),
        }
    }
}

/// Makes one store call for this many callers.
pub(super) async fn send(
    store: &dyn Store,
    verb: Verb,
    exchange: Exchange,
    callers: usize,
) -> Result<Exchanged> {
    metrics::histogram!("plimsoll_engine_group_calls", "method" => verb.as_str())
        .record(callers as f64);
    let mut exchanged = Exchanged {
        commits: Vec::new(),
        renewals: None,
        claimed: None,
    };
    let Exchange {
        commits,
        renew,
        claim,
    } = exchange;
    match (verb, renew, claim) {
        (Verb::Commit, ..) => exchanged.commits = store.commit(commits).await,
        (Verb::Renew, Some(renew), _) => exchanged.renewals = Some(store.renew(renew).await),
        (Verb::Claim, _, Some(claim)) => exchanged.claimed = Some(store.claim(claim).await),
        (Verb::Renew | Verb::Claim | Verb::Exchange, renew, claim) => {
            let exchange = Exchange {
                commits,
                renew,
                claim,
            };
            return store.exchange(exchange).await;
        }
    }
    Ok(exchanged)
}
