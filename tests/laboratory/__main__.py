from tests.laboratory.running import main

if __name__ == "__main__":
    main()
