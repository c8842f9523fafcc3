"""Broken rules of releases on Kubernetes: how what belongs to one is found, and how it is named."""

from __future__ import annotations

from ..mutation import Mutation

SETTINGS = "operator/smq_operator/kube/settings.py"

METRICS = "operator/smq_operator/metrics.py"

MUTATIONS = (
    Mutation(
        "report_no_loss_before_it_is_known",
        "A leader that has not read the index of a topic says nothing of its losses: 0 would make old ones look new.",
        METRICS,
        "if managed.index.is_read:",
        "if managed is not None:",
        ("tests/unit/operator/runtime/test_metrics.py",),
    ),
    Mutation(
        "find_a_release_by_a_label_of_others",
        "Deployment tools overwrite labels of app.kubernetes.io, so a release is found by its own label.",
        SETTINGS,
        'RELEASE_LABEL, COMPONENT_LABEL = "seaweedmq.io/release",',
        'RELEASE_LABEL, COMPONENT_LABEL = "app.kubernetes.io/instance",',
        (
            "tests/unit/operator/kube/test_conflicting_releases.py"
            "::test_an_operator_whose_deployment_a_deployment_tool_has_labelled_is_its_own",
        ),
    ),
    Mutation(
        "name_a_service_with_a_digit_first",
        "Names of a release's resources are DNS labels that begin with a letter, as in the chart.",
        SETTINGS,
        'name if name[0].isalpha() else f"smq-{name}"',
        "name",
        ("tests/unit/chart/test_names_and_values.py::test_the_operator_knows_the_names_of_its_release[123]",),
    ),
)
