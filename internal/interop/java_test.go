//go:build interop

package interop_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// install is what to run where a JDK or Maven is missing.
const install = "apt-get update && apt-get install -y --no-install-recommends default-jdk-headless maven"

// launchJava starts the Java program.
func launchJava(t *testing.T, addrs []string, prefix string, watchdog time.Duration) *peer {
	t.Helper()
	if err := buildJava(); err != nil {
		t.Fatal(err)
	}
	return launch(t, exec.Command("java",
		// It is small, lives for seconds, and is one of many on few cores.
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join("java", "target", "classes")+":"+filepath.Join("java", "target", "lib", "*"),
		"interop.Main", strings.Join(addrs, ","), prefix, strconv.FormatInt(watchdog.Milliseconds(), 10)))
}

// buildJava builds the Java program unless it is newer than its sources.
var buildJava = sync.OnceValue(func() error {
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing; get it with: %s", program, install)
		}
	}
	stamp := filepath.Join("java", "target", "built")
	fresh, err := newerThanSources(stamp)
	if err != nil || fresh {
		return err
	}
	// A class or jar that is no longer wanted must not stay in the class path.
	if err := os.RemoveAll(filepath.Join("java", "target")); err != nil {
		return err
	}
	out, err := exec.Command("mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", filepath.Join("java", "pom.xml")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return os.WriteFile(stamp, nil, 0o600)
})

func newerThanSources(stamp string) (bool, error) {
	built, err := os.Stat(stamp)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fresh := true
	err = filepath.WalkDir("java", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "target" {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fresh = fresh && built.ModTime().After(info.ModTime())
		return nil
	})
	return fresh, err
}
