//! Broken: rules of groups that a world can leave out, so that it is seen that the model notices.

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A member hands over whether or not its lease has ended.
    LeaseIgnored,
    /// A member counts its lease from the answer to a heartbeat, not from its sending.
    LeaseFromAnswer,
    /// A member takes grants whose epoch it has seen, or that are older.
    OldGrantsTaken,
    /// A member goes on handing over what it has buffered while it drains.
    HandsOverWhileDraining,
    /// A member that has left, what it holds kept for its next run, goes on with it for its lease.
    HandsOverAfterLeaving,
    /// Two processes share an incarnation, too.
    IncarnationShared,
    /// A revoke that was acknowledged is taken back.
    RevokeTakenBack,
    /// A forced hand-over does not wait for the lease of an owner that has not acknowledged.
    ForcedBeforeLease,
    /// The server counts a session for shorter than the member was told.
    SessionEndsEarly,
    /// A newer incarnation gets at once what the older has.
    SupersededBeforeLease,
    /// A late join of an older incarnation is taken for a new one.
    LateJoinFences,
    /// A grant is told before it is durable.
    GrantToldEarly,
    /// A release is answered, and the partition granted on, before it is durable.
    ReleaseAnsweredEarly,
    /// A commit is answered before it is durable.
    CommitAnsweredEarly,
    /// A restart forgets who owned what.
    RestartForgetsOwners,
    /// After a restart an owner counts as alive for less than its session timeout.
    RestartCountsShort,
    /// After a restart, epochs begin anew.
    RestartRepeatsEpochs,
    /// A commit under a void grant is taken.
    VoidCommitTaken,
    /// A release leaves the position out that it came with.
    ReleaseWithoutPosition,
    /// A forced hand-over is not counted.
    ForceUntold,
    /// The end of a session is never noticed.
    SessionsEndless,
}

impl Broken {
    pub(crate) const ALL: [Broken; 21] = [
        Broken::LeaseIgnored,
        Broken::LeaseFromAnswer,
        Broken::OldGrantsTaken,
        Broken::HandsOverWhileDraining,
        Broken::HandsOverAfterLeaving,
        Broken::IncarnationShared,
        Broken::RevokeTakenBack,
        Broken::ForcedBeforeLease,
        Broken::SessionEndsEarly,
        Broken::SupersededBeforeLease,
        Broken::LateJoinFences,
        Broken::GrantToldEarly,
        Broken::ReleaseAnsweredEarly,
        Broken::CommitAnsweredEarly,
        Broken::RestartForgetsOwners,
        Broken::RestartCountsShort,
        Broken::RestartRepeatsEpochs,
        Broken::VoidCommitTaken,
        Broken::ReleaseWithoutPosition,
        Broken::ForceUntold,
        Broken::SessionsEndless,
    ];
}
