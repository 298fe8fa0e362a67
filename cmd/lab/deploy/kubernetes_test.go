package deploy

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"getwork/cmd/lab"
)

// cluster is what `kubectl apply -k deploy/kubernetes` creates.
type cluster struct {
	namespace  core.Namespace
	deployment apps.Deployment
	service    core.Service
	budget     policy.PodDisruptionBudget
	network    networking.NetworkPolicy
	settings   core.ConfigMap
}

// built runs kustomize, and decodes each object strictly: a field that the API does not have, or has twice, is an error.
func built(t *testing.T) cluster {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), lab.Path("deploy/kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	var c cluster
	into := map[string]any{
		"v1 Namespace":                       &c.namespace,
		"apps/v1 Deployment":                 &c.deployment,
		"v1 Service":                         &c.service,
		"policy/v1 PodDisruptionBudget":      &c.budget,
		"networking.k8s.io/v1 NetworkPolicy": &c.network,
		"v1 ConfigMap":                       &c.settings,
	}
	for _, object := range objects.Resources() {
		kind := object.GetApiVersion() + " " + object.GetKind()
		text, err := object.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		target, ok := into[kind]
		if !ok {
			t.Errorf("a %s is not expected, or is there twice", kind)
			continue
		}
		if err := yaml.UnmarshalStrict(text, target); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		delete(into, kind)
	}
	for kind := range into {
		t.Errorf("there is no %s", kind)
	}
	return c
}

// The objects fit together: selectors find the pods, ports have names that exist, and nothing runs with more rights than it needs.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	c := built(t)
	pod := c.deployment.Spec.Template
	for what, labels := range map[string]map[string]string{
		"the deployment's selector": c.deployment.Spec.Selector.MatchLabels,
		"the service's selector":    c.service.Spec.Selector,
		"the budget's selector":     c.budget.Spec.Selector.MatchLabels,
		"the network's selector":    c.network.Spec.PodSelector.MatchLabels,
	} {
		if len(labels) == 0 || !reflect.DeepEqual(labels, pod.Labels) {
			t.Errorf("%s is %v, and the pods have %v", what, labels, pod.Labels)
		}
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if spread.LabelSelector == nil || !reflect.DeepEqual(spread.LabelSelector.MatchLabels, pod.Labels) {
			t.Errorf("pods are spread by %v, and have %v", spread.LabelSelector, pod.Labels)
		}
	}
	node := pod.Spec.Containers[0]
	ports := map[string]bool{}
	for _, port := range node.Ports {
		ports[port.Name] = true
	}
	for _, port := range c.service.Spec.Ports {
		if !ports[port.TargetPort.StrVal] {
			t.Errorf("the service leads to the port %q, which the node lacks", port.TargetPort.String())
		}
	}
	for _, rule := range c.network.Spec.Ingress {
		for _, port := range rule.Ports {
			if !ports[port.Port.StrVal] {
				t.Errorf("the network opens the port %q, which the node lacks", port.Port.String())
			}
		}
	}
	if got := node.EnvFrom[0].ConfigMapRef.Name; got != c.settings.Name || got == "getwork" {
		t.Errorf("the node has its settings from %q; they are in %q, which must have a hash", got, c.settings.Name)
	}
	s, p := node.SecurityContext, pod.Spec.SecurityContext
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*p.RunAsNonRoot || *p.RunAsUser == 0 || s.Capabilities.Drop[0] != "ALL" ||
		p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("the node has rights that it does not need: %v %v", s, p)
	}
	for what, probe := range map[string]struct {
		*core.Probe
		path string
	}{"startup": {node.StartupProbe, "/livez"}, "liveness": {node.LivenessProbe, "/livez"}, "readiness": {node.ReadinessProbe, "/readyz"}} {
		if probe.HTTPGet == nil || probe.HTTPGet.Path != probe.path || !ports[probe.HTTPGet.Port.StrVal] {
			t.Errorf("the %s probe asks %v", what, probe.HTTPGet)
		}
	}
	if r := node.ReadinessProbe; time.Duration(r.PeriodSeconds*r.FailureThreshold)*time.Second > drain(t)/5 {
		t.Errorf("the readiness probe notices a 503 after %d s, and a node that drains waits %s for that", r.PeriodSeconds*r.FailureThreshold, drain(t)/5)
	}
	if c.budget.Spec.MaxUnavailable.IntValue() >= int(*c.deployment.Spec.Replicas) {
		t.Error("the budget lets all nodes go at once")
	}
}

// Whoever ends a node gives it the time that it takes to drain, and some seconds.
func TestKubernetesDrains(t *testing.T) {
	t.Parallel()
	c := built(t)
	set, err := time.ParseDuration(c.settings.Data["GETWORK_DRAIN_TIMEOUT"])
	if err != nil || set != drain(t) {
		t.Errorf("the settings have %q; the default is %s", c.settings.Data["GETWORK_DRAIN_TIMEOUT"], drain(t))
	}
	enough(t, "terminationGracePeriodSeconds", time.Duration(*c.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second)
	for name := range c.settings.Data {
		if !strings.HasPrefix(name, "GETWORK_") {
			t.Errorf("%s is no setting", name)
		}
		knows(t, name)
	}
	for _, v := range c.deployment.Spec.Template.Spec.Containers[0].Env {
		if v.Name != "GOMEMLIMIT" { // Go's own
			knows(t, v.Name)
		}
	}
}

// Go collects before the pod has all of the memory that it may have, or large results get the node killed. The limit has room for what is
// not on Go's heap.
func TestKubernetesCollectsInTime(t *testing.T) {
	t.Parallel()
	node := built(t).deployment.Spec.Template.Spec.Containers[0]
	set := ""
	for _, v := range node.Env {
		if v.Name == "GOMEMLIMIT" {
			set = v.Value
		}
	}
	mib, err := strconv.ParseInt(strings.TrimSuffix(set, "MiB"), 10, 64)
	if limit := node.Resources.Limits.Memory().Value(); err != nil || mib<<20 < limit*8/10 || mib<<20 > limit*9/10 {
		t.Errorf("GOMEMLIMIT is %q; want MiB, some 85 %% of the pod's %d MiB", set, limit>>20)
	}
}

// The Job that migrates has the image, the database and the rights of the nodes, and calls a command that there is.
func TestKubernetesMigrates(t *testing.T) {
	t.Parallel()
	c := built(t)
	var job batch.Job
	if err := yaml.UnmarshalStrict([]byte(read(t, lab.Path("deploy/kubernetes/migrate.yaml"))), &job); err != nil {
		t.Fatal(err)
	}
	theirs, its := c.deployment.Spec.Template.Spec, job.Spec.Template.Spec
	node, m := theirs.Containers[0], its.Containers[0]
	for what, pair := range map[string][2]any{
		"image":                {node.Image, m.Image},
		"mounts":               {node.VolumeMounts, m.VolumeMounts},
		"volumes":              {theirs.Volumes, its.Volumes},
		"container's rights":   {node.SecurityContext, m.SecurityContext},
		"pod's rights":         {theirs.SecurityContext, its.SecurityContext},
		"service's token":      {theirs.AutomountServiceAccountToken, its.AutomountServiceAccountToken},
		"service's variables":  {theirs.EnableServiceLinks, its.EnableServiceLinks},
		"database's variables": {databaseOf(node), databaseOf(m)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("the nodes' %s: %v, and the Job's: %v", what, pair[0], pair[1])
		}
	}
	if len(job.Spec.Template.Labels) > 0 || its.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("the Service could lead to the Job, or it runs twice: %v, %s", job.Spec.Template.Labels, its.RestartPolicy)
	}
	file, err := program()
	if err != nil {
		t.Fatal(err, file)
	}
	output(t, file, append(m.Args, "--help")...)
	if help := output(t, file, "migrate", "down", "--help"); !strings.Contains(help, "--to=") {
		t.Errorf("migrate down has no --to:\n%s", help)
	}
}

// databaseOf returns the variable that names the nodes' database.
func databaseOf(c core.Container) (all []core.EnvVar) {
	for _, v := range c.Env {
		if v.Name == "GETWORK_DATABASE_URL_FILE" {
			all = append(all, v)
		}
	}
	return all
}
