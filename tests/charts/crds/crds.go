// Package crds names the types that controller-gen makes CustomResourceDefinitions of.
package crds

import _ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
