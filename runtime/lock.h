/* One small lock, since <threads.h> does not exist everywhere. */
#ifndef VKMHA_RUNTIME_LOCK_H
#define VKMHA_RUNTIME_LOCK_H

#ifdef _WIN32
#include <windows.h>
typedef SRWLOCK vkmha_lock;
#define VKMHA_LOCK_INIT SRWLOCK_INIT
static inline void vkmha_lock_init(vkmha_lock *lock)
{
    InitializeSRWLock(lock);
}
static inline void vkmha_lock_finish(vkmha_lock *lock)
{
    (void)lock;
}
static inline void vkmha_lock_acquire(vkmha_lock *lock)
{
    AcquireSRWLockExclusive(lock);
}
static inline void vkmha_lock_release(vkmha_lock *lock)
{
    ReleaseSRWLockExclusive(lock);
}
#else
#include <pthread.h>
typedef pthread_mutex_t vkmha_lock;
#define VKMHA_LOCK_INIT PTHREAD_MUTEX_INITIALIZER
static inline void vkmha_lock_init(vkmha_lock *lock)
{
    /* Default attributes: glibc, musl and bionic cannot fail here. */
    (void)pthread_mutex_init(lock, NULL);
}
static inline void vkmha_lock_finish(vkmha_lock *lock)
{
    (void)pthread_mutex_destroy(lock);
}
static inline void vkmha_lock_acquire(vkmha_lock *lock)
{
    (void)pthread_mutex_lock(lock);
}
static inline void vkmha_lock_release(vkmha_lock *lock)
{
    (void)pthread_mutex_unlock(lock);
}
#endif

#endif
